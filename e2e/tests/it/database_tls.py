# Connects as Glance does: the URL comes out of the environment through oslo.config and goes into SQLAlchemy.
# Reads [{"url", "files"}] and prints [{"configured", "ok", "user", "cipher", "error"}].
import json
import os
import sys

from oslo_config import cfg
from sqlalchemy import create_engine

answers = []
for case in json.load(sys.stdin):
    os.environ["OS_DATABASE__CONNECTION"] = case["url"]
    conf = cfg.ConfigOpts()
    conf.register_opts([cfg.StrOpt("connection", secret=True)], group="database")
    conf([], default_config_files=[])
    url = conf.database.connection
    answer = {"configured": url, "ok": False}
    # The files lie elsewhere than in a pod.
    url = url.replace("/etc/glance/db-tls/", case["files"] + "/")
    engine = create_engine(url, connect_args={"connect_timeout": 5})
    try:
        with engine.connect() as connection:
            run = connection.exec_driver_sql
            answer["user"] = run("SELECT CURRENT_USER()").scalar()
            answer["cipher"] = run("SHOW STATUS LIKE 'Ssl_cipher'").fetchone()[1]
            answer["ok"] = True
    except Exception as error:
        answer["error"] = str(error)
    finally:
        engine.dispose()
    answers.append(answer)
json.dump(answers, sys.stdout)
