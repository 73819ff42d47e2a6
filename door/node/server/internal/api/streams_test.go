package api

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testcri"
)

// asked keeps the last request for a stream.
type asked struct{ what proto.Message }

func (a *asked) Exec(_ http.ResponseWriter, _ *http.Request, what *runtimeapi.ExecRequest) error {
	a.what = what
	return nil
}

func (a *asked) Attach(_ http.ResponseWriter, _ *http.Request, what *runtimeapi.AttachRequest) error {
	a.what = what
	return nil
}

func (a *asked) PortForward(_ http.ResponseWriter, _ *http.Request, what *runtimeapi.PortForwardRequest) error {
	a.what = what
	return nil
}

// asker sends a request.
type asker func(method, path string) *httptest.ResponseRecorder

// inWorld runs a test with the API of a running pod "job" and a waiting pod "late".
func inWorld(t *testing.T, test func(t *testing.T, pods managed, streams *asked, ask asker)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pods, streams := open(t, t.TempDir(), scarce{testcri.New(0)}), &asked{}
		defer pods.Close()
		pods.add(t)
		h := New(pods, streams, nil, slog.New(slog.DiscardHandler)).Handler()
		test(t, pods, streams, func(method, path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
			return w
		})
	})
}

// TestLists checks that lists contain the pods with specification and status, and that /runningpods/ contains only
// running ones.
func TestLists(t *testing.T) {
	inWorld(t, func(t *testing.T, _ managed, _ *asked, ask asker) {
		for path, want := range map[string]map[string]corev1.PodPhase{
			"/pods":         {"job": corev1.PodRunning, "late": corev1.PodPending},
			"/pods/":        {"job": corev1.PodRunning, "late": corev1.PodPending},
			"/runningpods/": {"job": corev1.PodRunning},
		} {
			w := ask(http.MethodGet, path)
			var list corev1.PodList
			if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != http.StatusOK {
				t.Fatalf("%s: %d, %v", path, w.Code, err)
			}
			if list.Kind != "PodList" || list.APIVersion != "v1" || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s: %v, %v", path, list.TypeMeta, w.Header())
			}
			got := map[string]corev1.PodPhase{}
			for i := range list.Items {
				p := &list.Items[i]
				got[p.Name] = p.Status.Phase
				if p.Namespace != "default" || string(p.UID) != "00000000-"+p.Name || p.Spec.Containers[0].Name != "c" ||
					len(p.Status.ContainerStatuses) != 1 {
					t.Errorf("%s: %s", path, p)
				}
			}
			if !maps.Equal(got, want) || len(list.Items) != len(want) {
				t.Errorf("%s: %v, want %v", path, got, want)
			}
		}
	})
}

// TestStreamsOfPods checks that a stream is opened for the named container or pod, by its UID if given, with the
// requested streams. A terminal has no separate stderr.
func TestStreamsOfPods(t *testing.T) {
	inWorld(t, func(t *testing.T, pods managed, streams *asked, ask asker) {
		job := pods.Find("default", "job")
		id, _ := job.Container("c")
		uid := string(job.UID())
		const all = "?input=1&output=1&error=1"
		for path, want := range map[string]proto.Message{
			"/exec/default/job/c" + all + "&command=a&command=b": &runtimeapi.ExecRequest{
				ContainerId: id, Cmd: []string{"a", "b"}, Stdin: true, Stdout: true, Stderr: true,
			},
			"/exec/default/job/" + uid + "/c?error=1&command=a": &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"a"}, Stderr: true},
			"/exec/default/job/c?output=1&command=a":            &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"a"}, Stdout: true},
			"/exec/default/job/c" + all + "&tty=1&command=a": &runtimeapi.ExecRequest{
				ContainerId: id, Cmd: []string{"a"}, Tty: true, Stdin: true, Stdout: true,
			},
			"/attach/default/job/" + uid + "/c" + all: &runtimeapi.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: true},
			"/attach/default/job/c" + all + "&tty=1":  &runtimeapi.AttachRequest{ContainerId: id, Tty: true, Stdin: true, Stdout: true},
			"/portForward/default/job/" + uid + "?port=80&port=81": &runtimeapi.PortForwardRequest{
				PodSandboxId: job.Sandbox(), Port: []int32{80, 81},
			},
			"/portForward/default/job?port=80,81&port=82": &runtimeapi.PortForwardRequest{
				PodSandboxId: job.Sandbox(), Port: []int32{80, 81, 82},
			},
			"/portForward/default/job": &runtimeapi.PortForwardRequest{PodSandboxId: job.Sandbox()},
		} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				streams.what = nil
				if w := ask(method, path); w.Code != http.StatusOK || !proto.Equal(streams.what, want) {
					t.Errorf("%s %s: %d %q, asked for %v, want %v", method, path, w.Code, w.Body, streams.what, want)
				}
			}
		}
	})
}

// TestNoStream checks that unknown names, wrong UIDs and pods that do not run are refused.
func TestNoStream(t *testing.T) {
	inWorld(t, func(t *testing.T, pods managed, streams *asked, ask asker) {
		other := string(pods.Find("default", "late").UID())
		for path, want := range map[string]string{
			"/exec/default/job/" + other + "/c?command=a":   `404 pod "job" not found in namespace "default"`,
			"/attach/default/job/" + other + "/c":           `404 pod "job" not found in namespace "default"`,
			"/portForward/default/job/" + other + "?port=1": `404 pod "job" not found in namespace "default"`,
			"/exec/default/none/c?command=a":                `404 pod "none" not found in namespace "default"`,
			"/exec/default/job/d?command=a":                 `404 container not found ("d")`,
			"/exec/default/late/c?command=a":                `404 container not found ("c")`,
			"/portForward/default/job?port=0":               `400 invalid port "0"`,
			"/portForward/default/job?port=65536":           `400 invalid port "65536"`,
			"/portForward/default/job?port=80,":             `400 invalid port ""`,
		} {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				w := ask(method, path)
				if got := fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String())); got != want || streams.what != nil {
					t.Errorf("%s %s: %q, want %q; asked for %v", method, path, got, want, streams.what)
				}
			}
		}
	})
}
