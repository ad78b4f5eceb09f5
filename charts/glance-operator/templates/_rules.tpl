{{/*
The twenty rules that an installation of the Go operator has, in its order: audits compare them
one by one. What this operator uses beyond them is in "glance-operator.fleetRules".
*/}}
{{- define "glance-operator.rules" -}}
- apiGroups: [glance.openstack.c5c3.io]
  resources: [glances]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [glance.openstack.c5c3.io]
  resources: [glances/status]
  verbs: [get, update, patch]
# Children carry a blocking owner reference; the ownership-permission admission plugin asks for this.
- apiGroups: [glance.openstack.c5c3.io]
  resources: [glances/finalizers]
  verbs: [update]
- apiGroups: [glance.openstack.c5c3.io]
  resources: [glancebackends]
  verbs: [get, list, watch]
- apiGroups: [glance.openstack.c5c3.io]
  resources: [glancebackends/status]
  verbs: [get, update, patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps, secrets]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [batch]
  resources: [jobs, cronjobs]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [k8s.mariadb.com]
  resources: [databases, users, grants]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [k8s.mariadb.com]
  resources: [mariadbs]
  verbs: [get, list, watch]
# Only to explain a missing Secret in a condition's message.
- apiGroups: [external-secrets.io]
  resources: [externalsecrets]
  verbs: [get, list, watch]
- apiGroups: [external-secrets.io]
  resources: [clustersecretstores, secretstores]
  verbs: [get, list, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes/status]
  verbs: [get]
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [get, list, watch]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch, create, update, patch, delete]
{{- end }}

{{/*
The same without what is never used, for values.hardenedRBAC. Leases are in "glance-operator.leaseRules".
*/}}
{{- define "glance-operator.hardenedRules" -}}
- apiGroups: [glance.openstack.c5c3.io]
  resources: [glances]
  verbs: [get, list, watch, patch]
- apiGroups: [glance.openstack.c5c3.io]
  resources: [glances/status, glancebackends/status]
  verbs: [patch]
- apiGroups: [glance.openstack.c5c3.io]
  resources: [glances/finalizers]
  verbs: [update]
- apiGroups: [glance.openstack.c5c3.io]
  resources: [glancebackends]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
# The connection of the database is replaced as a whole.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs, cronjobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [k8s.mariadb.com]
  resources: [databases, users, grants]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [k8s.mariadb.com]
  resources: [mariadbs]
  verbs: [get, list, watch]
- apiGroups: [external-secrets.io]
  resources: [clustersecretstores, secretstores, externalsecrets]
  verbs: [get, list, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [get]
{{- end }}

{{/* Leader election, in the release namespace, for values.hardenedRBAC. */}}
{{- define "glance-operator.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update, patch]
{{- end }}

{{/* Asking the API server to fetch a Glance's health, only with apiProbe.mode=api-proxy. */}}
{{- define "glance-operator.localProbeRules" -}}
- apiGroups: [""]
  resources: [services/proxy]
  verbs: [get]
{{- end }}

{{/* Without any of these the operator runs; each brings one feature. */}}
{{- define "glance-operator.fleetRules" -}}
# Policy and status of registrations.
- apiGroups: [clusters.openstack.c5c3.io]
  resources: [targetclusters]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [clusters.openstack.c5c3.io]
  resources: [targetclusters/status]
  verbs: [get, update, patch]
# The hub's identity (the UID of kube-system), and grants by namespace label.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
# The cause of a stuck Job or rollout.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list]
{{- if .Values.targetClusters.authorizeUse }}
# Whether the author of a Glance may use its target cluster.
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- if eq .Values.apiProbe.mode "api-proxy" }}
{{ include "glance-operator.localProbeRules" . }}
{{- end }}
{{- end }}
