// Command control-plane is a whole Kubernetes control plane in one binary: the
// first argument says which component this process is. Every component is the
// upstream one, linked as a library, so a machine needs Go and nothing else.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	helm "helm.sh/helm/v4/pkg/cmd"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

const usage = `usage: control-plane COMPONENT [flags]

components: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok, kubectl, helm`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	name := os.Args[1]
	// The components read os.Args themselves: hand them what they would see
	// as programs of their own.
	args := append([]string{name}, os.Args[2:]...)
	os.Args = args

	var command *cobra.Command
	switch filepath.Base(name) {
	case "etcd":
		etcdmain.Main(args)
		return
	case "kube-apiserver":
		command = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		command = controllermanager.NewControllerManagerCommand()
	case "kube-scheduler":
		command = scheduler.NewSchedulerCommand()
	case "kwok":
		os.Exit(runKwok())
	case "kubectl":
		command = kubectl.NewDefaultKubectlCommand()
	case "helm":
		os.Exit(runHelm(args))
	default:
		fmt.Fprintf(os.Stderr, "control-plane: unknown component %q\n%s\n", name, usage)
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}

// runKwok starts the node simulator. Its command takes its configuration files
// out of the context, so they are read before the command exists.
func runKwok() int {
	// Kubernetes' own packages put a --version of their kind among the global
	// flags, where this command would find it in place of its own.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ExitOnError)

	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}

	ctx, logger := kwoklog.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		logger.Error("read the configuration", "err", err)
		return 1
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		logger.Error("run the node simulator", "err", err)
		return 1
	}
	return 0
}

// runHelm renders and installs the charts with the real engine.
func runHelm(args []string) int {
	command, err := helm.NewRootCmd(os.Stdout, args[1:], helm.SetupLogging)
	if err == nil {
		err = command.Execute()
	}
	if err != nil {
		return 1
	}
	return 0
}
