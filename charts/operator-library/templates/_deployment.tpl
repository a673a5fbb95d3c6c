{{- define "operator.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "operator.fullname" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
spec:
  # One replica, and the old one gone before the new one starts: no leader is elected yet, and two would undo each
  # other's work whenever they differ.
  replicas: 1
  strategy:
    type: Recreate
  revisionHistoryLimit: 2
  selector:
    matchLabels: {{- include "operator.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "operator.podLabels" . | nindent 8 }}
      {{- with .Values.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec: {{- include "operator.pod" . | nindent 6 }}
{{- end -}}

{{/* The selector's labels win over anybody's. */}}
{{- define "operator.podLabels" -}}
{{- merge (include "operator.labels" . | fromYaml) .Values.podLabels | toYaml -}}
{{- end -}}

{{- define "operator.pod" -}}
serviceAccountName: {{ include "operator.serviceAccountName" . | quote }}
automountServiceAccountToken: true
enableServiceLinks: false
terminationGracePeriodSeconds: 30
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
containers:
  - name: operator
    image: {{ include "operator.image" . | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: {{- include "operator.arguments" . | nindent 6 }}
    {{- with .Values.extraEnv }}
    env: {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      - name: probes
        containerPort: 8081
        protocol: TCP
      {{- if .Values.metrics.enabled }}
      - name: metrics
        containerPort: {{ .Values.metrics.port }}
        protocol: TCP
      {{- end }}
    resources: {{- toYaml .Values.resources | nindent 6 }}
    # Up to a minute to come up (a slow image, a busy node); afterwards a minute of no answer, or of a reconcile that
    # hangs, means a restart. Ready says that the first lists are read.
    startupProbe:
      httpGet: {path: /healthz, port: probes}
      periodSeconds: 1
      timeoutSeconds: 3
      failureThreshold: 60
    livenessProbe:
      httpGet: {path: /healthz, port: probes}
      periodSeconds: 20
      timeoutSeconds: 5
      failureThreshold: 3
    readinessProbe:
      httpGet: {path: /readyz, port: probes}
      periodSeconds: 5
      timeoutSeconds: 3
      failureThreshold: 2
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
{{- end -}}

{{/* Flags rather than variables: extraEnv cannot contradict them, and no variable is ever named twice. */}}
{{- define "operator.arguments" -}}
- --operator-name={{ include "operator.process" . }}
- --resync={{ int64 .Values.resync }}
- --workers={{ int64 .Values.workers }}
- --log-level={{ .Values.logLevel }}
- --log-format={{ .Values.logFormat }}
- --image-repository={{ .Values.operandImageRepository }}
- --health-probe-bind-address=:8081
- --metrics-bind-address={{ ternary (printf ":%d" (int64 .Values.metrics.port)) "0" .Values.metrics.enabled }}
{{- with .Values.watchNamespaces }}
- --watch-namespace={{ join "," . }}
{{- end }}
{{- end -}}
