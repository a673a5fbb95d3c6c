{{/*
Serving certificate of the webhook and metrics. The chart never renders a private key: rendering is deterministic, and no
release contains a key.
*/}}

{{/* "true" if anything is served over TLS, else empty. */}}
{{- define "operator.certificatesNeeded" -}}
{{- if or .Values.webhook.enabled (and .Values.metrics.enabled .Values.metrics.secure) -}}true{{- end -}}
{{- end -}}

{{/* "true" if the certificate is mounted from a Secret, which the operator does not read through the API; else empty. */}}
{{- define "operator.certificatesMounted" -}}
{{- if and (include "operator.certificatesNeeded" .) (ne .Values.certificates.source "self") -}}true{{- end -}}
{{- end -}}

{{- define "operator.certificatesSecret" -}}
{{- $own := printf "%s-certificates" (include "operator.fullname" .) -}}
{{- ternary $own (default $own .Values.certificates.secretName) (eq .Values.certificates.source "self") -}}
{{- end -}}

{{/* DNS names of the certificate: those of the Services. */}}
{{- define "operator.certificatesHosts" -}}
{{- $hosts := list -}}
{{- range $part, $enabled := dict "metrics" (and .Values.metrics.enabled .Values.metrics.secure) "webhook" .Values.webhook.enabled -}}
{{- if $enabled -}}
{{- $service := printf "%s-%s.%s.svc" (include "operator.fullname" $) $part (include "operator.namespace" $) -}}
{{- $hosts = append (append $hosts $service) (printf "%s.cluster.local" $service) -}}
{{- end -}}
{{- end -}}
{{- join "," $hosts -}}
{{- end -}}

{{/* Name of the webhook configurations whose caBundle the operator sets; empty if cert-manager injects it. */}}
{{- define "operator.certificatesInjected" -}}
{{- if and .Values.webhook.enabled (ne .Values.certificates.source "certManager") -}}
{{ include "operator.fullname" . }}
{{- end -}}
{{- end -}}

{{/* Volume and mount of the certificate, each as a list, which is empty if the operator reads it through the API. */}}
{{- define "operator.certificatesVolumes" -}}
{{- if include "operator.certificatesMounted" . -}}
- name: certificates
  secret:
    secretName: {{ include "operator.certificatesSecret" . | quote }}
{{- end }}
{{- if and .Values.webhook.enabled .Values.webhook.clientCA }}
- name: webhook-client-ca
  configMap:
    name: {{ .Values.webhook.clientCA | quote }}
{{- end }}
{{- end -}}

{{- define "operator.certificatesMounts" -}}
{{- if include "operator.certificatesMounted" . -}}
- name: certificates
  mountPath: /certificates
  readOnly: true
{{- end }}
{{- if and .Values.webhook.enabled .Values.webhook.clientCA }}
- name: webhook-client-ca
  mountPath: /webhook-client-ca
  readOnly: true
{{- end }}
{{- end -}}

{{- define "operator.certificatesArguments" -}}
{{- if include "operator.certificatesMounted" . -}}
- --certificates=/certificates
{{- else if include "operator.certificatesNeeded" . -}}
- --certificates=self:{{ include "operator.namespace" . }}/{{ include "operator.certificatesSecret" . }}
- --certificate-hosts={{ include "operator.certificatesHosts" . }}
{{- end }}
{{- with include "operator.certificatesInjected" . }}
- --webhook-configurations={{ . }}
{{- end }}
{{- end -}}

{{/*
Source self: an empty Secret, which the operator fills and `helm uninstall` deletes. Source certManager: a Certificate, and
a self-signed Issuer if issuerRef names none.
*/}}
{{- define "operator.certificates" -}}
{{- if include "operator.certificatesNeeded" . }}
{{- $name := printf "%s-certificates" (include "operator.fullname" .) }}
{{- if eq .Values.certificates.source "self" }}
---
apiVersion: v1
kind: Secret
metadata:
  name: {{ $name | quote }}
  namespace: {{ include "operator.namespace" . | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
type: Opaque
{{- else if eq .Values.certificates.source "certManager" }}
{{- $issuer := .Values.certificates.issuerRef }}
{{- if not $issuer.name }}
{{- $issuer = dict "name" $name "kind" "Issuer" "group" "cert-manager.io" }}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: {{ $name | quote }}
  namespace: {{ include "operator.namespace" . | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
spec:
  selfSigned: {}
{{- end }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $name | quote }}
  namespace: {{ include "operator.namespace" . | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
spec:
  secretName: {{ include "operator.certificatesSecret" . | quote }}
  dnsNames: {{- splitList "," (include "operator.certificatesHosts" .) | toYaml | nindent 4 }}
  issuerRef: {{- toYaml $issuer | nindent 4 }}
  privateKey:
    algorithm: ECDSA
    size: 256
    rotationPolicy: Always
  usages: [digital signature, server auth]
{{- end }}
{{- end }}
{{- end -}}
