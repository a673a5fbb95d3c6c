{{/*
`helm test`: a pod with the operator's image creates the smallest resource, writes data to it and reads the data back. A
successful test deletes all of its objects; after a failure they stay until the next test, so that the pod's log can be read.
*/}}
{{- define "operator.check" -}}
{{- $own := include "operator.namespace" . }}
{{- $namespace := ternary $own (first (append .Values.watchNamespaces $own)) (has $own .Values.watchNamespaces) }}
{{- $plural := index .Chart.Annotations "platform/checked" }}
{{- $crd := .Files.Get (printf "files/crds/%s.yaml" $plural) | fromYaml }}
{{- $name := printf "check-%s" (include "operator.fullname" .) }}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{- include "operator.checkMetadata" (list . (include "operator.namespace" .) -2) | nindent 2 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{- include "operator.checkMetadata" (list . $namespace -2) | nindent 2 }}
rules:
  - apiGroups: [{{ $crd.spec.group | quote }}]
    resources: [{{ $plural | quote }}]
    verbs: [create]
  - apiGroups: [{{ $crd.spec.group | quote }}]
    resources: [{{ $plural | quote }}]
    resourceNames: [{{ $name | quote }}]
    verbs: [get, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{- include "operator.checkMetadata" (list . $namespace -1) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name | quote }}
subjects:
  - kind: ServiceAccount
    name: {{ $name | quote }}
    namespace: {{ include "operator.namespace" . | quote }}
{{- if .Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: # not of the test: `helm test --logs` reads the log of a pod with the name of each object of the test
  name: {{ include "operator.fullname" . }}-check
  namespace: {{ include "operator.namespace" . | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "operator.checkLabels" . | nindent 6 }}
  policyTypes: {{ ternary "[Ingress, Egress]" "[Ingress]" .Values.networkPolicy.restrictEgress }}
  {{- if .Values.networkPolicy.restrictEgress }}
  egress:
    {{- include "operator.reachesCluster" . | nindent 4 }}
    - to:
        - namespaceSelector:
            matchLabels:
              kubernetes.io/metadata.name: {{ $namespace | quote }}
          podSelector:
            matchLabels: {{- include "operator.checkedLabels" . | nindent 14 }}
  {{- end }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{- include "operator.checkMetadata" (list . $namespace -2) | nindent 2 }}
spec:
  podSelector:
    matchLabels: {{- include "operator.checkedLabels" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    - from:
        - namespaceSelector:
            matchLabels:
              kubernetes.io/metadata.name: {{ include "operator.namespace" . | quote }}
          podSelector:
            matchLabels: {{- include "operator.checkLabels" . | nindent 14 }}
        - namespaceSelector:
            matchLabels:
              kubernetes.io/metadata.name: {{ include "operator.namespace" . | quote }}
          podSelector:
            matchLabels: {{- include "operator.selectorLabels" . | nindent 14 }}
{{- end }}
---
apiVersion: v1
kind: Pod
metadata: {{- include "operator.checkMetadata" (list . (include "operator.namespace" .) 0) | nindent 2 }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ $name | quote }}
  automountServiceAccountToken: true
  enableServiceLinks: false
  securityContext: {{- include "operator.podSecurity" . | nindent 4 }}
  {{- include "operator.pullSecrets" . | nindent 2 }}
  {{- include "operator.nodes" . | nindent 2 }}
  containers:
    - name: check
      image: {{ include "operator.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: [python3, -m, operators.{{ index .Chart.Annotations "platform/operator" }}.check]
      args:
        - --namespace={{ $namespace }}
        - --name={{ $name }}
        {{- with .Values.checkVersion }}
        - --database-version={{ . }}
        {{- end }}
      resources:
        requests: {cpu: 20m, memory: 64Mi}
        limits: {memory: 128Mi}
      securityContext: {{- include "operator.containerSecurity" . | nindent 8 }}
{{- end -}}

{{/* Arguments, as a list: the root, a namespace, and the hook's weight (RBAC objects are created before the pod). */}}
{{- define "operator.checkMetadata" -}}
{{- $root := index . 0 -}}
name: check-{{ include "operator.fullname" $root }}
namespace: {{ index . 1 | quote }}
labels:
  {{- include "operator.labels" $root | fromYaml | merge (include "operator.checkLabels" $root | fromYaml) | toYaml | nindent 2 }}
annotations:
  helm.sh/hook: test
  helm.sh/hook-weight: {{ index . 2 | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* The name and component differ from the operator's, so that its selectors do not match the test pod. */}}
{{- define "operator.checkLabels" -}}
app.kubernetes.io/name: {{ include "operator.name" . | trunc 57 }}-check
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: check
{{- end -}}

{{/* Labels of the pods of the resource that the test creates. */}}
{{- define "operator.checkedLabels" -}}
app.kubernetes.io/managed-by: {{ include "operator.process" . }}
app.kubernetes.io/instance: check-{{ include "operator.fullname" . }}
{{- end -}}
