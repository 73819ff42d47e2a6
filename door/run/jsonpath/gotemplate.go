package jsonpath

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/template"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// Rows fills in a Go template with each item of a JSON list, one line each, like podman's --format. With the prefix
// "table ", a header has the names of the fields. The error matches api.ErrInvalid.
func Rows(format string, list json.RawMessage) (string, error) {
	var items []map[string]any
	if err := json.Unmarshal(list, &items); err != nil {
		return "", fmt.Errorf("%w value: %w", api.ErrInvalid, err)
	}
	text, table := strings.CutPrefix(strings.NewReplacer(`\t`, "\t", `\n`, "\n").Replace(format), "table ")
	t, err := template.New("format").Option("missingkey=error").Funcs(template.FuncMap{"json": asJSON}).Parse(text)
	if err != nil {
		return "", errclass.New(api.ErrInvalid, "--format %q: %w", format, err)
	}
	var out bytes.Buffer
	if table {
		titles := strings.NewReplacer("{{.", "", "{{ .", "", " }}", "", "}}", "").Replace(text)
		out.WriteString(strings.ToUpper(titles) + "\n")
	}
	for _, item := range items {
		if err := t.Execute(&out, item); err != nil {
			_, why, _ := strings.Cut(err.Error(), ">: ")
			return "", errclass.New(api.ErrInvalid, "--format %q: %s", format, why)
		}
		out.WriteString("\n")
	}
	return out.String(), nil
}

func asJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
