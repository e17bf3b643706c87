{{- define "type" -}}
{{- $type := . -}}
{{ if $type.IsAlias }}
Underlying type: {{ markdownRenderTypeLink $type.UnderlyingType }}
{{ end }}
{{ $type.Doc }}
{{ if $type.References }}
Appears in
{{- range $i, $r := $type.SortedReferences }}{{ if $i }},{{ end }} {{ markdownRenderTypeLink $r }}{{ end }}.
{{ end }}
{{- if $type.Members }}
| Field | | Default | Validation |
| --- | --- | --- | --- |
{{ range $type.Members -}}
{{ if ne .Name "metadata" -}}
| `{{ .Name }}` _{{ markdownRenderType .Type }}_ | {{ .Doc | replace "\n" " " | markdownRenderFieldDoc }} | {{ markdownRenderDefault .Default }} | {{ range .Validation }}{{ $v := . }}{{ if not (contains "XValidation" $v) }}{{ if hasSuffix ": {}" $v }}{{ $v | trimSuffix ": {}" }}{{ else }}`{{ $v | replace "`" "" | replace "\n" " " | replace "|" "\\|" }}`{{ end }} {{ end }}{{ end }} |
{{ end -}}
{{ end -}}
{{ end -}}
{{- if $type.EnumValues }}
| Value | |
| --- | --- |
{{ range $type.EnumValues -}}
| `{{ .Name }}` | {{ .Doc | replace "\n" " " | markdownRenderFieldDoc }} |
{{ end -}}
{{ end -}}
{{- end -}}
