{{/* Base name of the roles and bindings: the release name when it says what this is already. */}}
{{- define "target-cluster-access.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "target-cluster-access.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end }}

{{- define "target-cluster-access.subjects" -}}
- kind: ServiceAccount
  name: {{ .Values.serviceAccount.name | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end }}

{{/* Refuses values that grant something else than they seem to; every template starts with it. */}}
{{- define "target-cluster-access.check" -}}
{{- /*
`helm upgrade --reuse-values` takes the values of the chart that was installed for those of this one, and a value that is
set to null is as if the chart did not have it.
*/}}
{{- range list "profile" "readNamespaces" "clusterWide" "optional" "renewCredentials" "namespaceLabels" "serviceAccount" }}
{{- if not (hasKey $.Values .) }}
{{- fail (printf "values.%s is missing or set to null: leave it out for its default, or, after an upgrade with --reuse-values from a chart that does not have it, upgrade with --reset-then-reuse-values (docs/how-to/move-from-the-go-operator.md)" .) }}
{{- end }}
{{- end }}
{{- if not .Values.serviceAccount.name }}
{{- fail "values.serviceAccount.name must be set" }}
{{- end }}
{{- if not (or .Values.namespaces .Values.clusterWide) }}
{{- fail "values.namespaces must name at least one namespace (the namespaces key of the registration Secret)" }}
{{- end }}
{{- if not (has .Values.profile (list "glance" "shared")) }}
{{- fail "values.profile must be glance or shared" }}
{{- end }}
{{- end }}

{{/* Rights in each namespace. */}}
{{- define "target-cluster-access.namespaceRules" -}}
{{- include (printf "target-cluster-access.namespaceRules.%s" .Values.profile) . }}
{{- if and .Values.optional.causes (ne .Values.profile "shared") }}
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
{{- end }}
{{- end }}

{{- define "target-cluster-access.namespaceRules.glance" -}}
- apiGroups: [""]
  resources: [services, configmaps, secrets]
  verbs: [get, list, watch, create, update, patch, delete]
# The health probe of a placed Glance goes through this cluster's API server.
- apiGroups: [""]
  resources: [services/proxy]
  verbs: [get]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [batch]
  resources: [jobs, cronjobs]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [k8s.mariadb.com]
  resources: [databases, users, grants]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [k8s.mariadb.com]
  resources: [mariadbs]
  verbs: [get, list, watch]
- apiGroups: [external-secrets.io]
  resources: [externalsecrets, secretstores]
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
{{- end }}

{{- define "target-cluster-access.namespaceRules.shared" -}}
- apiGroups: [""]
  resources: [services, configmaps, secrets, serviceaccounts]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list]
- apiGroups: [""]
  resources: [pods/portforward]
  verbs: [create]
- apiGroups: [""]
  resources: [serviceaccounts/token]
  verbs: [create]
- apiGroups: [""]
  resources: [services/proxy]
  verbs: [get, create, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [batch]
  resources: [jobs, cronjobs]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [k8s.mariadb.com]
  resources: [databases, users, grants, mariadbs]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [memcached.c5c3.io]
  resources: [memcacheds]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [cert-manager.io]
  resources: [certificates]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [external-secrets.io]
  resources: [externalsecrets, pushsecrets, secretstores]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [generators.external-secrets.io]
  resources: [vaultdynamicsecrets]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [openbao.org]
  resources: [openbaoclusters, openbaotenants]
  verbs: [get, list, watch, create, update, patch, delete]
# Never escalate or bind: a role made with these grants no more than the account has.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, update, patch, delete]
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
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list]
{{- end }}

{{/* Rights that no namespace holds. */}}
{{- define "target-cluster-access.clusterRules" -}}
{{- if or (eq .Values.profile "shared") .Values.readNamespaces }}
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
{{- else if .Values.optional.identity }}
# Its UID tells clusters apart.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
{{- end }}
# The default secret store has no namespace.
- apiGroups: [external-secrets.io]
  resources: [clustersecretstores]
  verbs: [get, list, watch]
{{- if or (eq .Values.profile "shared") .Values.authDelegatorBinding }}
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterrolebindings]
  verbs: {{ ternary "[get, create, patch, delete]" "[get]" (.Values.authDelegatorBinding | default false) }}
{{- end }}
{{- if .Values.authDelegatorBinding }}
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles]
  resourceNames: ["system:auth-delegator"]
  verbs: [bind]
{{- end }}
{{- if .Values.clusterWide }}
{{ include "target-cluster-access.namespaceRules" . }}
{{- end }}
{{- end }}
