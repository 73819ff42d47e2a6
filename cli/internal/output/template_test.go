package output

import (
	"bytes"
	"strings"
	"testing"
)

func TestTemplate(t *testing.T) {
	t.Parallel()
	type item struct {
		Name   string
		Labels map[string]string
	}
	items := []item{{Name: "a", Labels: map[string]string{"x": "y"}}, {Name: "b"}}
	for format, want := range map[string]string{
		"{{.Name}}": "a\nb\n", `{{.Name}}\t{{.Labels.x}}`: "a\ty\nb\t\n", "table {{.Name}} x": "NAME X\na x\nb x\n",
		"{{json .Labels}}": "{\"x\":\"y\"}\nnull\n",
	} {
		var w bytes.Buffer
		err := Template(&w, format, items)
		if got := strings.ReplaceAll(w.String(), "<no value>", ""); err != nil || got != want {
			t.Errorf("%s: %v, %q, want %q", format, err, got, want)
		}
	}
	for format, want := range map[string]string{"{{.Name": "unclosed action", "{{.Nosuch}}": "can't evaluate field Nosuch"} {
		if err := Template(&bytes.Buffer{}, format, items); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", format, err, want)
		}
	}
}
