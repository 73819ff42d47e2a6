package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// reader is a pod with a directory of the host, declared in its document, and a part of it.
const reader = `apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  terminationGracePeriodSeconds: 0
  volumes:
  - {name: made, hostPath: {path: DIR/made, type: DirectoryOrCreate}}
  - {name: file, hostPath: {path: DIR/config, type: File}}
  containers:
  - name: c
    image: IMAGE
    command: [sh, -c, "cat /config; echo one >/made/one; echo two >/part/two; ls -R /made; exec sleep 1000"]
    volumeMounts:
    - {name: made, mountPath: /made}
    - {name: made, mountPath: /part, subPath: a/b}
    - {name: file, mountPath: /config, readOnly: true}
`

// TestHostPaths: a pod reads and writes directories of the host, given by flags and by documents. It continues
// after the engine and the server were killed.
func TestHostPaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"config": "configured\n", "in/put": "42"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := "cat /in/put; echo done >/out/result; echo x 2>&1 >/in/new || echo refused"
	got := w.must(t, "", "run", "-q", "--rm", "-v", dir+"/in:/in:ro", "--mount", "type=bind,src="+dir+",dst=/out", image, "sh", "-c", script)
	if !strings.HasPrefix(got, "42") || !strings.HasSuffix(got, "refused\n") {
		t.Errorf("the command printed %q", got)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "result")); err != nil || string(text) != "done\n" {
		t.Errorf("its result: %q, %v", text, err)
	}
	document := strings.NewReplacer("IMAGE", image, "DIR", dir).Replace(reader)
	w.must(t, document, "run", "-d", "-q", "-")
	w.soon(t, `^configured\n/made:\na\none\n\n/made/a:\nb\n\n/made/a/b:\ntwo\n$`, "logs", "reader")

	w.must(t, "", "exec", "reader", "--", "sh", "-c", "exec 3>/made/open; echo held >&3; cat /made/one")
	w.shutdown(t)
	if got := w.must(t, "", "exec", "reader", "--", "cat", "/made/one", "/part/two"); got != "one\ntwo\n" {
		t.Errorf("with the next engine: %q", got)
	}
	w.shutdown(t)
	for _, p := range w.processes() {
		if len(p.args) > 0 && filepath.Base(p.args[0]) == "bulkhead-share" {
			if err := kill(p.pid); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := w.must(t, "", "exec", "reader", "--", "cat", "/made/one", "/part/two"); got != "one\ntwo\n" {
		t.Errorf("with the next server: %q", got)
	}
	w.must(t, "", "rm", "-f", "reader")

	c := w.run(t, strings.Replace(document, "type: File", "type: Directory", 1), "run", "-")
	if c.ProcessState.ExitCode() == 0 || !strings.Contains(c.String(), "hostPath type check failed: "+dir+"/config is not a directory") {
		t.Errorf("a file for a directory: %v", c)
	}
	w.end(t)
}
