{{/*
The certificate of webhook and metrics. Its private key is never rendered: rendering twice gives the same bytes, and no
release holds a key.
*/}}

{{/* Whether anything is served with it; empty if not. */}}
{{- define "operator.certificatesNeeded" -}}
{{- if or .Values.webhook.enabled (and .Values.metrics.enabled .Values.metrics.secure) -}}true{{- end -}}
{{- end -}}

{{/* Whether it comes as files, from a Secret that the operator itself does not read; empty if not. */}}
{{- define "operator.certificatesMounted" -}}
{{- if and (include "operator.certificatesNeeded" .) (ne .Values.certificates.source "self") -}}true{{- end -}}
{{- end -}}

{{- define "operator.certificatesSecret" -}}
{{- $own := printf "%s-certificates" (include "operator.fullname" .) -}}
{{- ternary $own (default $own .Values.certificates.secretName) (eq .Values.certificates.source "self") -}}
{{- end -}}

{{/* The names that the certificate must be valid for: those of the Services before it. */}}
{{- define "operator.certificatesHosts" -}}
{{- $hosts := list -}}
{{- range $part, $enabled := dict "metrics" (and .Values.metrics.enabled .Values.metrics.secure) "webhook" .Values.webhook.enabled -}}
{{- if $enabled -}}
{{- $service := printf "%s-%s.%s.svc" (include "operator.fullname" $) $part $.Release.Namespace -}}
{{- $hosts = append (append $hosts $service) (printf "%s.cluster.local" $service) -}}
{{- end -}}
{{- end -}}
{{- join "," $hosts -}}
{{- end -}}

{{/* Which caBundle the operator keeps: that of its own configurations, unless cert-manager does. */}}
{{- define "operator.certificatesInjected" -}}
{{- if and .Values.webhook.enabled (ne .Values.certificates.source "certManager") -}}
{{ include "operator.fullname" . }}
{{- end -}}
{{- end -}}

{{- define "operator.certificatesArguments" -}}
{{- if include "operator.certificatesMounted" . -}}
- --certificates=/certificates
{{- else if include "operator.certificatesNeeded" . -}}
- --certificates=self:{{ .Release.Namespace }}/{{ include "operator.certificatesSecret" . }}
- --certificate-hosts={{ include "operator.certificatesHosts" . }}
{{- end }}
{{- with include "operator.certificatesInjected" . }}
- --webhook-configurations={{ . }}
{{- end }}
{{- end -}}

{{/*
Of source self, an empty Secret that the operator fills, so that it goes with the release. Of source certManager, the Certificate, and an issuer that signs for itself where none is named.
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
  namespace: {{ .Release.Namespace | quote }}
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
  namespace: {{ .Release.Namespace | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
spec:
  selfSigned: {}
{{- end }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $name | quote }}
  namespace: {{ .Release.Namespace | quote }}
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
