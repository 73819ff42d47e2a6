package run

import (
	"os"
	"strings"
	"testing"
)

func TestSourceOf(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"busybox", "pod"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("nginx", 0o755); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]struct{ isFile, noted bool }{
		"-":                        {isFile: true},
		"missing.yaml":             {isFile: true},
		"missing.JSON":             {isFile: true},
		"dir/a.yml":                {isFile: true},
		"./pod":                    {isFile: true},
		"./nginx":                  {isFile: true},
		"busybox":                  {noted: true},
		"nginx":                    {},
		"localhost/app:1.2":        {},
		"docker.io/library/alpine": {},
	} {
		isFile, note := sourceOf(arg)
		if isFile != want.isFile || (note != "") != want.noted {
			t.Errorf("%s: file %v, %q", arg, isFile, note)
		}
		if want.noted && !strings.Contains(note, "write ./busybox") {
			t.Errorf("%s: %q", arg, note)
		}
	}
}
