package kube

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/ociimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// testNetwork: the node and other pods reach a pod at its address and at its host ports.
func (w *world) testNetwork(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "server", `{containers: [{name: c, command: [httpd, -f, -p, "8080", -h, /etc],
  ports: [{containerPort: 8080, hostPort: 18080}], readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}}]}`)
	w.pod(ctx, t, "client", `{containers: [{name: c, command: [sleep, "1000"]}]}`)
	ip := w.ready(ctx, t, "server").Status.PodIP
	w.ready(ctx, t, "client")
	out, errs, err := w.exec(ctx, "client",
		corev1.PodExecOptions{Command: []string{"wget", "-q", "-O", "-", "http://" + ip + ":8080/hostname"}}, nil)
	if out != "server\n" || err != nil {
		t.Errorf("from a pod: %q, %q, %v", out, errs, err)
	}
	for _, at := range []string{ip + ":8080", testkube.NodeIP + ":18080"} {
		if got, err := get(ctx, "http://"+at+"/hostname"); got != "server\n" || err != nil {
			t.Errorf("from the node at %s: %q, %v", at, got, err)
		}
	}
}

// testHostNetwork: a pod with host network has the node's address and ports.
func (w *world) testHostNetwork(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "host", `{hostNetwork: true, containers: [{name: c, command: [httpd, -f, -p, "18081", -h, /home]}]}`)
	if ip := w.ready(ctx, t, "host").Status.PodIP; ip != testkube.NodeIP {
		t.Errorf("its address is %s", ip)
	}
	w.Wait(ctx, t, "the port on the node", func(ctx context.Context) error {
		_, err := get(ctx, "http://"+testkube.NodeIP+":18081/")
		return err
	})
}

func get(ctx context.Context, url string) (string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	q.Close = true
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

// testToken: a pod finds the API server through its environment, and authenticates as its service account with the
// token from the kubelet.
func (w *world) testToken(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	program := filepath.Join(t.TempDir(), "incluster")
	build := testgo.Command(ctx, "build", "-ldflags=-s", "-o", program, "./testdata/incluster")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	body, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	image, _ := w.registry.Push(t, "incluster:1", testimage.Image(t, v1.Config{Entrypoint: []string{"/incluster"}}, []ociimage.Entry{
		{Header: tar.Header{Typeflag: tar.TypeReg, Name: "incluster", Mode: 0o755}, Body: body},
	}))
	w.pod(ctx, t, "token", `{restartPolicy: Never, containers: [{name: c, image: "`+image+`"}]}`)
	pod := w.until(ctx, t, "token", "ended", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	})
	out := w.logs(ctx, t, "token", corev1.PodLogOptions{})
	for _, want := range []string{`"system:serviceaccount:default:default"`, `"authentication.kubernetes.io/pod-name":["token"]`} {
		if !strings.Contains(out, want) {
			t.Errorf("%s: %s is missing in %q", pod.Status.Phase, want, out)
		}
	}
}

// testSecurity: a pod's user and groups apply to its containers and volumes.
func (w *world) testSecurity(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	w.pod(ctx, t, "security", `{securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 2000, supplementalGroups: [3000],
    seccompProfile: {type: RuntimeDefault}, sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "0"}]},
  volumes: [{name: v, emptyDir: {}},
    {name: s, downwardAPI: {defaultMode: 288, items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}],
  containers: [{name: c, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /v}, {name: s, mountPath: /s}],
    securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}`)
	w.ready(ctx, t, "security")
	script := `id -u; id -G; touch /v/f && stat -c %g /v/f; cat /s/name; echo; touch /x 2>/dev/null || echo read-only
grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t'; cat /proc/sys/net/ipv4/ip_unprivileged_port_start`
	out, errs, err := w.exec(ctx, "security", corev1.PodExecOptions{Command: []string{"sh", "-c", script}}, nil)
	want := "1000\n1000 2000 3000\n2000\nsecurity\nread-only\nNoNewPrivs:1\nSeccomp:2\nCapEff:0000000000000000\n0\n"
	if sorted(out) != sorted(want) || err != nil {
		t.Errorf("%q, %q, %v", out, errs, err)
	}
}

// testRefused: features that a VM cannot provide are refused, and the pod's events say why.
func (w *world) testRefused(t *testing.T) {
	t.Parallel()
	ctx := testdeadline.Context(t, time.Minute)
	for name, c := range map[string]struct{ spec, says string }{
		"host-pid": {`{hostPID: true, containers: [{name: c, command: ["true"]}]}`, "hostPID"},
		"host-path": {`{volumes: [{name: v, hostPath: {path: /proc/sys}}],
  containers: [{name: c, command: ["true"], volumeMounts: [{name: v, mountPath: /v}]}]}`, "host path"},
	} {
		w.pod(ctx, t, name, c.spec)
		w.Wait(ctx, t, fmt.Sprintf("an event that names %s", c.says), func(ctx context.Context) error {
			events, err := w.events(ctx, name)
			if err == nil && !strings.Contains(events, c.says) {
				err = fmt.Errorf("there are %s", events)
			}
			return err
		})
	}
}
