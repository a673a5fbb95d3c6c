{{/* ServiceAccount of the operator. Only the operator's pods mount a token (see the Deployment). */}}
{{- define "operator.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "operator.serviceAccountName" . | quote }}
  namespace: {{ include "operator.namespace" . | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
  {{- with .Values.serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}
{{- end -}}

{{/*
Permissions of the operator, from files/rules*.yaml: in all namespaces, or only in those of watchNamespaces.
*/}}
{{- define "operator.access" -}}
{{- if .Values.rbac.create -}}
{{- $scopes := .Values.watchNamespaces | default (list "") -}}
{{- range $namespace := $scopes }}
{{- $role := ternary "Role" "ClusterRole" (ne $namespace "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $role }}
metadata: {{- include "operator.accessMetadata" (list $ $namespace) | nindent 2 }}
rules: {{- include "operator.rules" $ | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $role }}Binding
metadata: {{- include "operator.accessMetadata" (list $ $namespace) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $role }}
  name: {{ include "operator.fullname" $ | quote }}
subjects: {{- include "operator.subject" $ | nindent 2 }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Rules that always apply, those of files/rules-NAME.yaml if the value rbac.NAME is true, and of rbac.watchSecrets. */}}
{{- define "operator.rules" -}}
{{- $rules := .Files.Get "files/rules.yaml" | fromYamlArray }}
{{- range $path, $content := .Files.Glob "files/rules-*.yaml" }}
{{- if get $.Values.rbac ($path | base | trimPrefix "rules-" | trimSuffix ".yaml") }}
{{- $rules = concat $rules ($content | toString | fromYamlArray) }}
{{- end }}
{{- end }}
{{- if get $.Values.rbac "watchSecrets" }}
{{- $rules = append $rules (dict "apiGroups" (list "") "resources" (list "secrets") "verbs" (list "watch")) }}
{{- end }}
{{- toYaml $rules }}
{{- end -}}

{{/* Rules about cluster-scoped objects, of files/cluster-rules-NAME.yaml if the value rbac.NAME is true. */}}
{{- define "operator.clusterRules" -}}
{{- $rules := list }}
{{- range $path, $content := .Files.Glob "files/cluster-rules-*.yaml" }}
{{- if get $.Values.rbac ($path | base | trimPrefix "cluster-rules-" | trimSuffix ".yaml") }}
{{- $rules = concat $rules ($content | toString | fromYamlArray) }}
{{- end }}
{{- end }}
{{- toYaml $rules }}
{{- end -}}

{{- define "operator.accessMetadata" -}}
{{- $root := index . 0 -}}
name: {{ include "operator.fullname" $root | quote }}
{{- with index . 1 }}
namespace: {{ . | quote }}
{{- end }}
labels: {{- include "operator.labels" $root | nindent 2 }}
{{- end -}}

{{/*
Permissions in the operator's own namespace: its Leases and events about them, and the Secret with its certificate (`create`
with a resource name allows server-side apply after the Secret was deleted, and `watch` with one a watch of that object).
It can neither list nor watch other Secrets.
*/}}
{{- define "operator.ownAccess" -}}
{{- if .Values.rbac.create }}
{{- $name := printf "%s-own" (include "operator.fullname" .) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name | quote }}
  namespace: {{ include "operator.namespace" . | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames:
      - {{ include "operator.process" . }}
      {{- range untilStep 0 10 1 }} # --shards is at most 10; pods with another number may still run during an upgrade
      - {{ include "operator.process" $ }}-shard-{{ . }}
      {{- end }}
    verbs: [get, patch]
  - apiGroups: [""]
    resources: [events]
    verbs: [get, create, patch]
  {{- if and (include "operator.certificatesNeeded" .) (eq .Values.certificates.source "self") }}
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: [{{ include "operator.certificatesSecret" . | quote }}]
    verbs: [get, watch, create, patch]
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name | quote }}
  namespace: {{ include "operator.namespace" . | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name | quote }}
subjects: {{- include "operator.subject" . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
Cluster-scoped permissions of the operator: review the tokens and permissions of metrics clients, and set the caBundle of
its webhook configurations; and optional rules about cluster-scoped objects. Also the ClusterRole that allows reading the metrics; bind it to your Prometheus.
*/}}
{{- define "operator.clusterAccess" -}}
{{- if .Values.rbac.create }}
{{- $name := printf "%s-cluster" (include "operator.fullname" .) }}
{{- $reviews := and .Values.metrics.enabled .Values.metrics.secure }}
{{- $injects := include "operator.certificatesInjected" . }}
{{- $optional := include "operator.clusterRules" . | fromYamlArray }}
{{- if or $reviews $injects $optional }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
rules:
  {{- if $reviews }}
  - apiGroups: [authentication.k8s.io]
    resources: [tokenreviews]
    verbs: [create]
  - apiGroups: [authorization.k8s.io]
    resources: [subjectaccessreviews]
    verbs: [create]
  {{- end }}
  {{- if $injects }}
  - apiGroups: [admissionregistration.k8s.io]
    resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
    resourceNames: [{{ $injects | quote }}]
    verbs: [get, watch, patch]
  {{- end }}
  {{- with $optional }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name | quote }}
subjects: {{- include "operator.subject" . | nindent 2 }}
{{- end }}
{{- if $reviews }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "operator.fullname" . }}-metrics-reader
  labels: {{- include "operator.labels" . | nindent 4 }}
rules:
  - nonResourceURLs: [/metrics]
    verbs: [get]
{{- end }}
{{- end }}
{{- end -}}

{{- define "operator.subject" -}}
- kind: ServiceAccount
  name: {{ include "operator.serviceAccountName" . | quote }}
  namespace: {{ include "operator.namespace" . | quote }}
{{- end -}}

{{/*
Permissions of users: rules that are aggregated to the ClusterRoles view, edit and admin of Kubernetes.
*/}}
{{- define "operator.userRoles" -}}
{{- if and .Values.rbac.create .Values.rbac.aggregate -}}
{{- $view := list -}}
{{- $edit := list -}}
{{- range $_, $content := .Files.Glob "files/crds/*.yaml" }}
{{- $spec := ($content | toString | fromYaml).spec }}
{{- $group := list $spec.group }}
{{- $plural := $spec.names.plural }}
{{- $scale := list }}
{{- if (first $spec.versions).subresources.scale }}{{ $scale = list (printf "%s/scale" $plural) }}{{ end }}
{{- $all := concat (list $plural (printf "%s/status" $plural)) $scale }}
{{- $view = append $view (dict "apiGroups" $group "resources" $all "verbs" (list "get" "list" "watch")) }}
{{- $change := list "get" "list" "watch" "create" "delete" "deletecollection" "patch" "update" }}
{{- $edit = append $edit (dict "apiGroups" $group "resources" (list $plural) "verbs" $change) }}
{{- with $scale }}
{{- $edit = append $edit (dict "apiGroups" $group "resources" . "verbs" (list "get" "patch" "update")) }}
{{- end }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "operator.fullname" . }}-view
  labels:
    {{- include "operator.labels" . | nindent 4 }}
    servicebinding.io/controller: "true" # implementations of the Service Binding specification read status.binding
    rbac.authorization.k8s.io/aggregate-to-view: "true"
    rbac.authorization.k8s.io/aggregate-to-edit: "true"
    rbac.authorization.k8s.io/aggregate-to-admin: "true"
rules: {{- toYaml $view | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "operator.fullname" . }}-edit
  labels:
    {{- include "operator.labels" . | nindent 4 }}
    rbac.authorization.k8s.io/aggregate-to-edit: "true"
    rbac.authorization.k8s.io/aggregate-to-admin: "true"
rules: {{- toYaml $edit | nindent 2 }}
{{- end -}}
{{- end -}}
