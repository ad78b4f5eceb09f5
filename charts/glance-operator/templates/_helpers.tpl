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

{{/*
Base name of what has no namespace. Installs for one namespace each may share a release name, so theirs says the namespace;
the dot, which no namespace contains, keeps `a` in `b-c` apart from `c-a` in `b`.
*/}}
{{- define "glance-operator.clusterName" -}}
{{- if .Values.rbac.namespaceScoped }}{{ .Release.Namespace }}.{{ end }}{{ include "glance-operator.fullname" . }}
{{- end }}

{{- define "glance-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "glance-operator.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "glance-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "glance-operator.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "glance-operator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "glance-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end }}

{{/* The labels with the user's own, whose values win: (list context labels). A key that comes twice is no valid YAML. */}}
{{- define "glance-operator.labelsAnd" -}}
{{- $own := omit (index . 1 | default dict) "app.kubernetes.io/managed-by" }}
{{- merge $own (include "glance-operator.labels" (index . 0) | fromYaml) | toYaml }}
{{- end }}

{{/* The one subject of every binding. */}}
{{- define "glance-operator.subjects" -}}
- kind: ServiceAccount
  name: {{ include "glance-operator.serviceAccountName" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end }}

{{/* Refuses values that the templates cannot work with, or that cannot work together; every template starts with it. */}}
{{- define "glance-operator.check" -}}
{{- /*
`helm upgrade --reuse-values` takes the values of the chart that was installed for those of this one, and a value that is
set to null is as if the chart did not have it.
*/}}
{{- $why := "is missing or set to null: leave it out for its default, or, after an upgrade with --reuse-values from a chart that does not have it, upgrade with --reset-then-reuse-values (docs/how-to/move-from-the-go-operator.md)" }}
{{- range list "hardenedRBAC" "serviceMonitorLabels" }}
{{- if not (hasKey $.Values .) }}
{{- fail (printf "values.%s %s" . $why) }}
{{- end }}
{{- end }}
{{- range $path := list "image" "rbac" "leaderElection" "controller" "webhook" "metrics" "logging" "monitoring" "monitoring.serviceMonitor" "serviceAccount" "networkPolicy" "networkPolicy.kubeApiServer" "networkPolicy.dns" "networkPolicy.webhookClients" "targetClusters" "apiProbe" "webhookCertificate" "scoped" "pod" "dashboard" "alerts" "secureMetrics" }}
{{- $group := $.Values }}
{{- range splitList "." $path }}
{{- $group = get $group . }}
{{- end }}
{{- if not (kindIs "map" $group) }}
{{- fail (printf "values.%s %s" $path $why) }}
{{- end }}
{{- end }}
{{- if not .Values.image.repository }}
{{- fail "values.image.repository must be set" }}
{{- end }}
{{- if and .Values.rbac.namespaceScoped .Values.webhook.enabled }}
{{- fail "values.webhook.enabled must be false with values.rbac.namespaceScoped: a namespace cannot have admission webhooks of its own (values.scoped.webhooks renders them for this namespace only)" }}
{{- end }}
{{- if .Values.networkPolicy.enabled }}
{{- if not .Values.networkPolicy.kubeApiServer.cidrs }}
{{- fail "values.networkPolicy.kubeApiServer.cidrs must name the addresses of the API server when values.networkPolicy.enabled is set: without them the operator is cut off" }}
{{- end }}
{{- if not .Values.networkPolicy.kubeApiServer.ports }}
{{- fail "values.networkPolicy.kubeApiServer.ports must name the ports of the API server when values.networkPolicy.enabled is set: without them the operator is cut off" }}
{{- end }}
{{- if .Values.networkPolicy.dns.enabled }}
{{- if not (and .Values.networkPolicy.dns.namespaceSelector .Values.networkPolicy.dns.podSelector) }}
{{- fail "values.networkPolicy.dns.namespaceSelector and values.networkPolicy.dns.podSelector must name labels: without them the policy opens port 53 of every pod" }}
{{- end }}
{{- end }}
{{- end }}
{{- $port := int .Values.metrics.port }}
{{- if not $port }}
{{- fail "values.metrics.port must be set" }}
{{- end }}
{{- if eq $port 8081 }}
{{- fail "values.metrics.port must not be 8081: health is served there" }}
{{- end }}
{{- if and (has $port (list 443 9443)) (include "glance-operator.webhooks" .) }}
{{- fail "values.metrics.port must be neither 443 nor 9443: the Service and the pod serve the webhooks there" }}
{{- end }}
{{- if ne (empty .Values.targetClusters.cidrs) (empty .Values.targetClusters.ports) }}
{{- fail "values.targetClusters.cidrs and values.targetClusters.ports go together" }}
{{- end }}
{{- if and .Values.secureMetrics.enabled (not (include "glance-operator.webhooks" .)) }}
{{- fail "values.secureMetrics.enabled needs the certificate of the webhooks: set values.webhook.enabled" }}
{{- end }}
{{- if and .Values.targetClusters.authorizeUse (not (include "glance-operator.webhooks" .)) }}
{{- fail "values.targetClusters.authorizeUse is enforced by the webhooks: set values.webhook.enabled" }}
{{- end }}
{{- if not (has .Values.apiProbe.mode (list "direct" "api-proxy")) }}
{{- fail "values.apiProbe.mode must be direct or api-proxy" }}
{{- end }}
{{- if not (has .Values.webhookCertificate.mode (list "self-signed" "ca" "existing")) }}
{{- fail "values.webhookCertificate.mode must be self-signed, ca or existing" }}
{{- end }}
{{- if eq .Values.webhookCertificate.mode "existing" }}
{{- if not (and .Values.webhookCertificate.secretName .Values.webhookCertificate.caBundle) }}
{{- fail "values.webhookCertificate.secretName and values.webhookCertificate.caBundle must be set with values.webhookCertificate.mode=existing" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether admission is served: empty or true. */}}
{{- define "glance-operator.webhooks" -}}
{{- if or .Values.webhook.enabled (and .Values.rbac.namespaceScoped .Values.scoped.webhooks) }}true{{ end }}
{{- end }}

{{/* Whether cert-manager makes the serving certificate: empty or true. */}}
{{- define "glance-operator.certManager" -}}
{{- if and (include "glance-operator.webhooks" .) (ne .Values.webhookCertificate.mode "existing") }}true{{ end }}
{{- end }}

{{/* The Secret with the serving certificate. */}}
{{- define "glance-operator.webhookSecret" -}}
{{- if eq .Values.webhookCertificate.mode "existing" }}
{{- .Values.webhookCertificate.secretName }}
{{- else }}
{{- printf "%s-webhook-cert" (include "glance-operator.fullname" .) }}
{{- end }}
{{- end }}

{{- define "glance-operator.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The operator's arguments, in the order of the Go operator's chart; what that chart has not comes last. */}}
{{- define "glance-operator.args" -}}
{{- if .Values.leaderElection.enabled }}
- --leader-elect
{{- end }}
{{- if .Values.rbac.namespaceScoped }}
- --namespace={{ .Release.Namespace }}
- --clusters-namespace=
{{- else if not .Values.targetClusters.enabled }}
- --clusters-namespace=
{{- else if .Values.targetClusters.namespace }}
- --clusters-namespace={{ .Values.targetClusters.namespace }}
{{- end }}
{{- if not (include "glance-operator.webhooks" .) }}
- --enable-webhooks=false
{{- end }}
{{- with .Values.controller.maxConcurrentReconciles }}
- --max-concurrent-reconciles={{ . }}
{{- end }}
- --metrics-bind-address=:{{ .Values.metrics.port }}
- --health-probe-bind-address=:8081
{{- if .Values.logging.development }}
- --zap-devel=true
{{- end }}
{{- with .Values.logging.level }}
- --zap-log-level={{ . }}
{{- end }}
{{- with .Values.logging.encoder }}
- --zap-encoder={{ . }}
{{- end }}
{{- if ne .Values.apiProbe.mode "direct" }}
- --local-probe={{ .Values.apiProbe.mode }}
{{- end }}
{{- if .Values.secureMetrics.enabled }}
- --metrics-secure
{{- end }}
{{- if and .Values.targetClusters.enabled (not .Values.rbac.namespaceScoped) }}
{{- if .Values.targetClusters.requireGrants }}
- --require-target-grants
{{- end }}
{{- if .Values.targetClusters.authorizeUse }}
- --authorize-target-use
{{- end }}
{{- end }}
{{- with .Values.pod.args }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* One egress rule to `cidrs` on `ports`. */}}
{{- define "glance-operator.addresses" -}}
- to:
    {{- range .cidrs }}
    - ipBlock:
        cidr: {{ . | quote }}
    {{- end }}
  ports:
    {{- range .ports }}
    - protocol: TCP
      port: {{ . }}
    {{- end }}
{{- end }}
