package logs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPrepareRun: the logs of a pod become the older file of its next run's logs, up to the limit.
func TestPrepareRun(t *testing.T) {
	t.Parallel()
	big := string(bytes.Repeat([]byte("x"), Bound-2))
	for name, test := range map[string]struct{ files, want map[string]string }{
		"none":          {nil, map[string]string{}},
		"one run":       {map[string]string{"0.log": "a"}, map[string]string{"0.log.1": "a"}},
		"carried twice": {map[string]string{"0.log.1": "a", "0.log": "b"}, map[string]string{"0.log.1": "ab"}},
		"several runs": {map[string]string{"9.log": "a", "10.log.1": "b", "10.log": "c", "11.log": "d"},
			map[string]string{"0.log.1": "abcd"}},
		"too much":         {map[string]string{"0.log.1": "a", "0.log": "bb" + big, "1.log": "c"}, map[string]string{"0.log.1": "c"}},
		"too much at once": {map[string]string{"0.log.1": "a", "0.log": "bbb" + big}, map[string]string{"0.log.1": "bbb" + big}},
		"another's file": {map[string]string{"0.log": "a", "note": "b", "x.log": "c"},
			map[string]string{"0.log.1": "a", "note": "b", "x.log": "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			of := filepath.Join(dir, "main")
			if err := os.Mkdir(of, 0o700); err != nil {
				t.Fatal(err)
			}
			for name, text := range test.files {
				if err := os.WriteFile(filepath.Join(of, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := PrepareRun(dir); err != nil {
				t.Fatal(err)
			}
			files, err := os.ReadDir(of)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, f := range files {
				text, err := os.ReadFile(filepath.Join(of, f.Name()))
				if err != nil {
					t.Fatal(err)
				}
				got[f.Name()] = string(text)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%.500s", diff)
			}
		})
	}
	if err := PrepareRun(filepath.Join(t.TempDir(), "absent")); err != nil {
		t.Error(err)
	}
}
