{{/*
Webhook configurations for every CRD of files/crds. The caBundle is not rendered: the operator sets it or cert-manager
injects it, and `helm upgrade` keeps it.
*/}}
{{- define "operator.webhook" -}}
{{- if .Values.webhook.enabled }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ include "operator.fullname" . }}-webhook
  namespace: {{ include "operator.namespace" . | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
spec:
  selector: {{- include "operator.selectorLabels" . | nindent 4 }}
  ports:
    - name: webhook
      port: 443
      targetPort: webhook
      protocol: TCP
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {{- include "operator.webhookMetadata" . | nindent 2 }}
webhooks: {{- include "operator.webhooks" (list . "default") }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{- include "operator.webhookMetadata" . | nindent 2 }}
webhooks: {{- include "operator.webhooks" (list . "validate") }}
{{- end }}
{{- end -}}

{{- define "operator.webhookMetadata" -}}
name: {{ include "operator.fullname" . | quote }}
labels: {{- include "operator.labels" . | nindent 2 }}
{{- if eq .Values.certificates.source "certManager" }}
annotations:
  cert-manager.io/inject-ca-from: {{ include "operator.namespace" . }}/{{ include "operator.fullname" . }}-certificates
{{- end }}
{{- end -}}

{{/* One webhook per CRD. Arguments, as a list: the root, and the operation (default or validate). */}}
{{- define "operator.webhooks" -}}
{{- $root := index . 0 }}
{{- $operation := index . 1 }}
{{- range $_, $content := $root.Files.Glob "files/crds/*.yaml" }}
{{- $spec := ($content | toString | fromYaml).spec }}
  - name: {{ $operation }}.{{ $spec.names.plural }}.{{ $spec.group }}
    clientConfig:
      service:
        name: {{ include "operator.fullname" $root }}-webhook
        namespace: {{ include "operator.namespace" $root | quote }}
        path: /{{ $operation }}
        port: 443
    rules:
      - apiGroups: [{{ $spec.group | quote }}]
        apiVersions: [{{ range $at, $version := $spec.versions }}{{ if $at }}, {{ end }}{{ $version.name | quote }}{{ end }}]
        resources: [{{ $spec.names.plural | quote }}]
        operations: [CREATE, UPDATE]
        scope: Namespaced
    failurePolicy: {{ $root.Values.webhook.failurePolicy }}
    timeoutSeconds: {{ int64 $root.Values.webhook.timeoutSeconds }}
    sideEffects: None
    admissionReviewVersions: [v1]
    matchPolicy: Equivalent
    {{- if eq $operation "default" }}
    reinvocationPolicy: IfNeeded
    {{- end }}
    namespaceSelector: {{- include "operator.webhookNamespaces" $root | nindent 6 }}
    # Changes of metadata only (labels, finalizers) and deletions skip the webhook, so that they work without an operator.
    matchConditions:
      - name: spec-changed
        expression: "!has(object.metadata.deletionTimestamp) && (oldObject == null || object.?spec != oldObject.?spec)"
{{- end }}
{{- end -}}

{{/* Selector of namespaces: those that the operator watches, restricted by webhook.namespaceSelector. */}}
{{- define "operator.webhookNamespaces" -}}
{{- $selector := deepCopy .Values.webhook.namespaceSelector }}
{{- with .Values.watchNamespaces }}
{{- $served := dict "key" "kubernetes.io/metadata.name" "operator" "In" "values" . }}
{{- $_ := set $selector "matchExpressions" (append (default list $selector.matchExpressions) $served) }}
{{- end }}
{{- toYaml $selector }}
{{- end -}}
