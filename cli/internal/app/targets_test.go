package app_test

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// fake returns an app with an engine that answers calls by method and path. asked lists the calls.
func fake(t *testing.T, answers map[string]any) (a *app.App, out *bytes.Buffer, asked *[]string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "app") // short: sockets lie below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	roots := dirs.Roots{State: dir, Data: dir}
	socket := client.Socket(roots)
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	asked = &[]string{}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call := r.Method + " " + r.URL.EscapedPath()
		if q := r.URL.Query().Encode(); q != "" {
			call += "?" + q
		}
		*asked = append(*asked, call)
		answer, ok := answers[call]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = api.ToError(errdefs.ErrNotFound)
		}
		_ = json.NewEncoder(w).Encode(answer)
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close() })
	out = &bytes.Buffer{}
	return &app.App{Roots: roots, Client: client.New(roots, nil), Out: out, Err: out}, out, asked
}

func TestTargets(t *testing.T) {
	two := []api.Pod{{Name: "a", Namespace: "default"}, {Name: "b", Namespace: "test"}}
	answers := map[string]any{
		"GET /v1/pods?selector=app%3Dweb":               two,
		"GET /v1/pods?selector=app%3Dnone":              []api.Pod{},
		"GET /v1/pods?kind=Deployment&workload=web":     two,
		"GET /v1/pods?kind=StatefulSet&workload=absent": []api.Pod{},
		"POST /v1/names":                                api.Names{Pods: []string{"default/c"}},
	}
	file := filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(file, []byte("kind: Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		t    app.Targets
		args []string
		want []string
		err  bool
	}{
		{name: "by name", args: []string{"web", "test/web", "pod/web"}, want: []string{"web", "test/web", "pod/web"}},
		{name: "by labels", t: app.Targets{Selector: "app=web"}, want: []string{"default/a", "test/b"}},
		{name: "by labels that none has", t: app.Targets{Selector: "app=none"}},
		{name: "by labels and name", t: app.Targets{Selector: "app=web"}, args: []string{"web"}, err: true},
		{name: "of a workload", args: []string{"deploy/web", "x"}, want: []string{"default/a", "test/b", "x"}},
		{name: "of a workload without a name", args: []string{"deployment/"}, want: []string{"deployment/"}},
		{name: "of a workload that is not there", args: []string{"sts/absent"}, err: true},
		{name: "of a file", t: app.Targets{Files: true}, args: []string{"x", file}, want: []string{"x", "default/c"}},
		{name: "of a file that is not there", t: app.Targets{Files: true}, args: []string{"none.yaml"}, err: true},
		{name: "a name like a file's", args: []string{"web.yaml"}, want: []string{"web.yaml"}},
	} {
		a, _, _ := fake(t, answers)
		got, err := a.Targets(t.Context(), tc.t, tc.args)
		if diff := cmp.Diff(tc.want, got); diff != "" || (err != nil) != tc.err {
			t.Errorf("%s: %v, %s", tc.name, err, diff)
		}
	}
}

// TestTouched: a command prints the name that the engine returns, and a namespace applies to pods named without
// one.
func TestTouched(t *testing.T) {
	a, out, asked := fake(t, map[string]any{
		"POST /v1/pods/4f2a/stop":       api.Result{Pod: "default/web"},
		"POST /v1/pods/test%2Fweb/stop": api.Result{Pod: "test/web"},
	})
	stop := func(ref string) (string, error) { return a.Stop(t.Context(), ref, api.StopRequest{}) }
	err := a.EachPod([]string{"4f2a"}, stop)
	a.Namespace = "test"
	if e := a.EachPod([]string{"pod/web"}, stop); err != nil || e != nil || out.String() != "web\ntest/web\n" {
		t.Errorf("%v, %v, %q of %q", err, e, out, *asked)
	}
}
