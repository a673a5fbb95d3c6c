{{/*
Metrics: a Service, and ServiceMonitors for the Prometheus operator. They are rendered without a check for the CRDs, because
`helm template` and GitOps tools have no access to the cluster.
*/}}
{{- define "operator.metrics" -}}
{{- if .Values.metrics.enabled }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ include "operator.fullname" . }}-metrics
  namespace: {{ include "operator.namespace" . | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
spec:
  selector: {{- include "operator.selectorLabels" . | nindent 4 }}
  ports:
    - name: metrics
      port: {{ int64 .Values.metrics.port }}
      targetPort: metrics
      protocol: TCP
{{- if .Values.metrics.serviceMonitor.enabled }}
---
{{ include "operator.ownMonitor" . }}
{{- end }}
{{- end }}
{{- with .Values.metrics.serviceMonitor }}
{{- if and .enabled .operands.enabled }}
---
{{ include "operator.operandMonitor" $ }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
Prometheus verifies the certificate for the Service's name, with the CA (ca.crt) from the same Secret. honorLabels keeps the
namespace of the resource that a metric describes, instead of the namespace of the operator's pod.
*/}}
{{- define "operator.ownMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ include "operator.fullname" . | quote }}
  namespace: {{ include "operator.namespace" . | quote }}
  labels: {{- include "operator.monitorLabels" . | nindent 4 }}
spec:
  selector:
    matchLabels: {{- include "operator.selectorLabels" . | nindent 6 }}
  endpoints:
    - port: metrics
      path: /metrics
      honorLabels: true
      {{- include "operator.interval" . | nindent 6 }}
      {{- if .Values.metrics.secure }}
      scheme: https
      {{- with .Values.metrics.serviceMonitor.tokenSecret }}
      {{- if .name }}
      authorization:
        credentials: {{- toYaml . | nindent 10 }}
      {{- else }}
      bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
      {{- end }}
      {{- end }}
      tlsConfig:
        serverName: {{ include "operator.fullname" . }}-metrics.{{ include "operator.namespace" . }}.svc
        ca:
          secret:
            name: {{ include "operator.certificatesSecret" . | quote }}
            key: ca.crt
      {{- else }}
      scheme: http
      {{- end }}
      {{- include "operator.relabelings" .Values.metrics.serviceMonitor | nindent 6 }}
{{- end -}}

{{/*
One ServiceMonitor for all databases: it selects the Services of the operator by label and their ports named metrics. The
label app.kubernetes.io/instance identifies the resource of each target.
*/}}
{{- define "operator.operandMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ include "operator.fullname" . }}-operands
  namespace: {{ include "operator.namespace" . | quote }}
  labels: {{- include "operator.monitorLabels" . | nindent 4 }}
spec:
  selector:
    matchLabels:
      app.kubernetes.io/managed-by: {{ include "operator.process" . }}
  namespaceSelector:
    {{- with .Values.watchNamespaces }}
    matchNames: {{- toYaml . | nindent 6 }}
    {{- else }}
    any: true
    {{- end }}
  jobLabel: app.kubernetes.io/name
  targetLabels: [app.kubernetes.io/instance]
  endpoints:
    - port: metrics
      path: /metrics
      scheme: http
      {{- include "operator.interval" . | nindent 6 }}
      {{- include "operator.relabelings" .Values.metrics.serviceMonitor.operands | nindent 6 }}
{{- end -}}

{{- define "operator.monitorLabels" -}}
{{- merge (include "operator.labels" . | fromYaml) .Values.metrics.serviceMonitor.labels | toYaml -}}
{{- end -}}

{{- define "operator.interval" -}}
{{- with .Values.metrics.serviceMonitor.interval -}}
interval: {{ . }}
{{- end -}}
{{- end -}}

{{- define "operator.relabelings" -}}
{{- with .relabelings }}
relabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
