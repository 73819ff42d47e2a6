package jsonpath

import (
	"bytes"
	"encoding/json"
	"strings"
	"text/template"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// Rows fills in a Go template with each item of a JSON list, one line each, like podman's --format. With the prefix
// "table ", a header has the names of the fields. The error matches errdefs.ErrInvalidArgument.
func Rows(format string, list json.RawMessage) (string, error) {
	var items []map[string]any
	if err := json.Unmarshal(list, &items); err != nil {
		return "", errclass.New(errdefs.ErrInvalidArgument, "invalid value: %w", err)
	}
	text, table := strings.CutPrefix(strings.NewReplacer(`\t`, "\t", `\n`, "\n").Replace(format), "table ")
	t, err := template.New("format").Option("missingkey=error").Funcs(template.FuncMap{"json": asJSON}).Parse(text)
	if err != nil {
		return "", errclass.New(errdefs.ErrInvalidArgument, "--format %q: %w", format, err)
	}
	var out bytes.Buffer
	if table {
		titles := strings.NewReplacer("{{.", "", "{{ .", "", " }}", "", "}}", "").Replace(text)
		out.WriteString(strings.ToUpper(titles) + "\n")
	}
	for _, item := range items {
		if err := t.Execute(&out, item); err != nil {
			_, why, _ := strings.Cut(err.Error(), ">: ")
			return "", errclass.New(errdefs.ErrInvalidArgument, "--format %q: %s", format, why)
		}
		out.WriteString("\n")
	}
	return out.String(), nil
}

func asJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
