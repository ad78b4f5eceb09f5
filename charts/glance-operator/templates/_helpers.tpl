{{/* Chart name, or its override. */}}
{{- define "glance-operator.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Base name of every object: the release name when it says what this is already. */}}
{{- define "glance-operator.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := .Values.nameOverride | default .Chart.Name }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "glance-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "glance-operator.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "glance-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "glance-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "glance-operator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "glance-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The one subject of every binding. */}}
{{- define "glance-operator.subjects" -}}
- kind: ServiceAccount
  name: {{ include "glance-operator.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

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

{{/* Asking the API server to fetch a Glance's health, only with localProbe=api-proxy. */}}
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
{{- if eq .Values.localProbe "api-proxy" }}
{{ include "glance-operator.localProbeRules" . }}
{{- end }}
{{- end }}
