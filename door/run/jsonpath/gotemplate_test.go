package jsonpath

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestRows(t *testing.T) {
	t.Parallel()
	const items = `[{"Name": "a", "Labels": {"x": "y"}}, {"Name": "b", "Labels": {}}]`
	for format, want := range map[string]string{
		"{{.Name}}": "a\nb\n", `{{.Name}}\t-`: "a\t-\nb\t-\n", "table {{.Name}} {{ .Name }}": "NAME NAME\na a\nb b\n",
		"{{json .Labels}}": "{\"x\":\"y\"}\n{}\n",
	} {
		if got, err := Rows(format, []byte(items)); err != nil || got != want {
			t.Errorf("%s: %v, %q, want %q", format, err, got, want)
		}
	}
	for format, want := range map[string]string{"{{.Name": "unclosed action", "{{.Nosuch}}": `no entry for key "Nosuch"`} {
		if _, err := Rows(format, []byte(items)); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", format, err, want)
		}
	}
}
