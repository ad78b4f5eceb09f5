{{/*
One webhook configuration. DELETE is left out on purpose: the server lives in the operator, and a
stopped one would block the deletion of its resources and of namespaces.
*/}}
{{- define "glance-operator.webhookConfiguration" -}}
{{- $root := .root }}
{{- $name := include "glance-operator.fullname" $root }}
apiVersion: admissionregistration.k8s.io/v1
kind: {{ .kind }}WebhookConfiguration
metadata:
  name: {{ include "glance-operator.clusterName" $root }}-{{ lower .kind }}
  labels:
    {{- include "glance-operator.labels" $root | nindent 4 }}
  {{- if include "glance-operator.certManager" $root }}
  annotations:
    cert-manager.io/inject-ca-from: {{ $root.Release.Namespace }}/{{ $name }}-webhook
  {{- end }}
webhooks:
  {{- range $kind := list "glance" "glancebackend" }}
  - name: {{ $.letter }}{{ $kind }}.kb.io
    admissionReviewVersions: [v1]
    clientConfig:
      {{- if eq $root.Values.webhookCertificate.mode "existing" }}
      caBundle: {{ $root.Values.webhookCertificate.caBundle | b64enc }}
      {{- end }}
      service:
        name: {{ $name | quote }}
        namespace: {{ $root.Release.Namespace | quote }}
        path: /{{ $.path }}-glance-openstack-c5c3-io-v1alpha1-{{ $kind }}
    failurePolicy: Fail
    {{- if $root.Values.rbac.namespaceScoped }}
    namespaceSelector:
      matchLabels:
        kubernetes.io/metadata.name: {{ $root.Release.Namespace | quote }}
    {{- end }}
    sideEffects: None
    # A stopped operator holds up neither a finalizer's removal nor the namespace that waits for it.
    matchConditions:
      - name: not-being-deleted
        expression: "!has(object.metadata.deletionTimestamp)"
    rules:
      - apiGroups: [glance.openstack.c5c3.io]
        apiVersions: [v1alpha1]
        operations: [CREATE, UPDATE]
        resources: [{{ $kind }}s]
  {{- end }}
{{- end }}
