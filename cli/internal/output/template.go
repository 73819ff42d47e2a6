package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/template"
)

// Template prints a row for each item by a template in Go's language, as podman does with --format. "table "
// before it puts the names of its fields above; "json" is a list of all.
func Template[T any](w io.Writer, format string, items []T) error {
	if format == "json" {
		return Format("json").Print(w, items, nil)
	}
	text, table := strings.CutPrefix(format, "table ")
	t, err := template.New("format").Funcs(template.FuncMap{"json": asJSON}).Parse(unescape(text))
	if err != nil {
		return fmt.Errorf("--format: %w", err)
	}
	if table {
		titles := strings.NewReplacer("{{.", "", "{{ .", "", " }}", "", "}}", "").Replace(unescape(text))
		if _, err := fmt.Fprintln(w, strings.ToUpper(titles)); err != nil {
			return err
		}
	}
	for _, item := range items {
		var line bytes.Buffer
		if err := t.Execute(&line, item); err != nil {
			_, why, _ := strings.Cut(err.Error(), ">: ")
			return fmt.Errorf("--format %q: %s", format, why)
		}
		if _, err := fmt.Fprintln(w, line.String()); err != nil {
			return err
		}
	}
	return nil
}

// unescape reads the escapes that shells leave in a format.
func unescape(text string) string { return strings.NewReplacer(`\t`, "\t", `\n`, "\n").Replace(text) }

func asJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
