package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sharers are two pods with one claim. The second has a part of it, read-only.
const sharers = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: media, namespace: prod}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer, namespace: prod}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: v, persistentVolumeClaim: {claimName: media}}]
  containers:
  - name: c
    image: IMAGE
    command: [sh, -c, "echo one >/v/file; echo two >/part/file; exec sleep 1000"]
    securityContext: {runAsUser: USER}
    volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /part, subPathExpr: "a/$(PART)"}]
    env: [{name: PART, value: b}]
---
apiVersion: v1
kind: Pod
metadata: {name: reader, namespace: prod}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: v, persistentVolumeClaim: {claimName: media, readOnly: true}}]
  containers:
  - name: c
    image: IMAGE
    command: [sh, -c, "until cat /v/a/b/file; do sleep 0.1; done; echo x >/v/file || echo refused; exec sleep 1000"]
    volumeMounts: [{name: v, mountPath: /v}]
`

// TestSharedClaim: two pods use one claim's volume concurrently. The volume outlives the pods and their engines,
// and only its removal by name deletes it.
func TestSharedClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	user := "1000"
	if os.Geteuid() != 0 {
		user = "0" // for others than root, it is the user nobody
	}
	document := strings.NewReplacer("IMAGE", image, "USER", user).Replace(sharers)
	pods := strings.SplitN(document, "---\n", 2)[1]
	c := w.run(t, pods, "run", "-d", "-")
	if said := c.err.String(); c.ProcessState.ExitCode() == 0 || !strings.Contains(said, `persistentvolumeclaim "media" not found`) ||
		!strings.Contains(said, "volume create prod_media") {
		t.Errorf("without the claim: %v", c)
	}
	c = w.run(t, document, "run", "-d", "-")
	if c.ProcessState.ExitCode() != 0 || !strings.Contains(c.err.String(), "volume prod_media was created") {
		t.Fatalf("with the claim: %v", c)
	}
	w.soon(t, `(?s)two\n.*refused`, "logs", "prod/reader")
	out := w.must(t, "", "volume", "ls")
	if !strings.Contains(out, "prod/reader,prod/writer") && !strings.Contains(out, "prod/writer,prod/reader") {
		t.Errorf("volume ls: %s", out)
	}
	c = w.run(t, "", "volume", "rm", "prod_media")
	if c.ProcessState.ExitCode() == 0 || !strings.Contains(c.err.String(), "is used by pod prod/reader, prod/writer") {
		t.Errorf("rm of one that is used: %v", c)
	}
	if err := kill(w.engine()); err != nil {
		t.Fatal(err)
	}
	if out := w.must(t, "", "exec", "prod/reader", "--", "cat", "/v/file"); out != "one\n" {
		t.Errorf("with the next engine: %q", out)
	}
	for _, path := range []string{"prod_media/files", "prod_media", "../volumes"} {
		path = filepath.Join(w.roots().Data, "volumes", path)
		c := w.run(t, "", "run", "--rm", "-q", "-v", path+":/v", image, "ls", "/v")
		if c.ProcessState.ExitCode() == 0 || !strings.Contains(c.err.String(), "Bulkhead's own") {
			t.Errorf("by the path %s: %v", path, c)
		}
	}
	w.must(t, "", "stop", "prod/reader", "prod/writer")
	if out := w.must(t, "", "volume", "prune", "-f"); !strings.HasPrefix(out, "freed 0 B") {
		t.Errorf("prune with ended pods: %s", out)
	}
	w.must(t, "", "rm", "prod/reader", "prod/writer")
	mount := "type=volume,source=prod_media,target=/v,readonly,cache=none"
	got := w.must(t, "", "run", "--rm", "-q", "--mount", mount, image, "cat", "/v/file", "/v/a/b/file")
	if got != "one\ntwo\n" {
		t.Errorf("after their end: %q", got)
	}
	w.must(t, strings.SplitN(document, "---\n", 2)[0], "run", "-") // only the claim, which exists
	if out := w.must(t, "", "volume", "rm", "prod_media"); out != "prod_media\n" {
		t.Errorf("rm: %q", out)
	}
	w.end(t)
}
