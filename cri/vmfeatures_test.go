package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/engine/process"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// TestFeatures checks in one real, forked pod what containers share, and how data goes in and out.
func TestFeatures(t *testing.T) {
	s, _ := realService(t, enginetest.Forks)
	ctx := testdeadline.Context(t, 3*time.Minute)

	s.warm(ctx, t, 0)
	port := freePort(t)
	config := podConfig("web")
	config.PortMappings = []*runtimeapi.PortMapping{{HostPort: port, ContainerPort: 8080}}
	options := runtimev1.PodOptions{EmptyDirs: map[string]containerv1.Dir{"share": {Medium: containerv1.Memory, Size: 1 << 20}}}
	began := time.Now()
	pod, err := s.RunPodSandboxWith(ctx, config, "", options)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("forked pod: %v", time.Since(began))
	facts, err := s.PodFacts(ctx, pod)
	if err != nil || !facts.Forked || !facts.Clone {
		t.Errorf("not a fork: %+v %v", facts, err)
	}
	for _, p := range facts.Phases {
		t.Logf("  %-20s %v", p.Name, p.Took)
	}
	share := &runtimeapi.Mount{ContainerPath: "/share", HostPath: "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/share"}
	last := filepath.Join(t.TempDir(), "last")
	if err := os.WriteFile(last, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	web := containerConfig("web", "sh", "-c",
		"echo words > /dev/termination-log; echo hello from $NAME > /share/index.html; exec httpd -f -p 8080 -h /share")
	web.Envs = []*runtimeapi.KeyValue{{Key: "NAME", Value: []byte("a=b c")}}
	web.Mounts = []*runtimeapi.Mount{share, {ContainerPath: "/dev/termination-log", HostPath: last}}
	shell := containerConfig("shell", "sh", "-c", "sleep 1000")
	shell.Mounts = []*runtimeapi.Mount{share}
	ids := map[string]string{}
	for _, c := range []*runtimeapi.ContainerConfig{web, shell} {
		began := time.Now()
		id := startContainer(ctx, t, s, pod, c, config)
		t.Logf("container %s: %v", c.Metadata.Name, time.Since(began))
		ids[c.Metadata.Name] = id
	}

	get := func() (string, error) {
		client := http.Client{Timeout: testdeadline.For(3 * time.Second), Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		return string(body), err
	}
	var body string
	for ctx.Err() == nil {
		if body, err = get(); err == nil && body != "" {
			break
		}
		time.Sleep(20 * time.Millisecond) // the server in the guest sends no signal when it listens
	}
	if body != "hello from a=b c\n" {
		t.Errorf("published port: %q %v", body, err)
	}
	look := []string{"sh", "-c", "cat /share/index.html; df -k /share | tail -1"}
	out, _, err := s.ExecSync(ctx, ids["shell"], look, testdeadline.For(20*time.Second))
	if err != nil || !strings.HasPrefix(string(out), "hello from a=b c\n") || !strings.Contains(string(out), " 1024 ") {
		t.Errorf("shared emptyDir: %q %v", out, err)
	}

	yes := []string{"sh", "-c", "yes | head -c 1000000; echo oops >&2; exit 3"}
	out, errOut, err := s.ExecSyncClipped(ctx, ids["shell"], yes, testdeadline.For(20*time.Second), 3)
	if exit, ok := errors.AsType[*process.ExitError](err); !ok || exit.Code != 3 || string(out) != "y\ny" || string(errOut) != "oop" {
		t.Errorf("clipped output: %q %q %v", out, errOut, err)
	}

	t.Run("stream", func(t *testing.T) {
		res, err := s.Exec(ctx, &runtimeapi.ExecRequest{
			ContainerId: ids["shell"],
			Cmd:         []string{"sh", "-c", "tr a-z A-Z; exit 4"},
			Stdin:       true,
			Stdout:      true,
			Stderr:      true,
		})
		if err != nil {
			t.Fatal(err)
		}
		conn := dialURL(ctx, t, res.Url)
		var out bytes.Buffer
		exit, err := stream.Stdio{Stdin: strings.NewReader("shout\n"), Stdout: &out}.Run(ctx, conn)
		if err != nil || exit != 4 || out.String() != "SHOUT\n" {
			t.Errorf("exec with stdin: %d %q %v", exit, out.String(), err)
		}
		res2, err := s.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: pod, Port: []int32{8080}})
		if err != nil {
			t.Fatal(err)
		}
		forward := dialURL(ctx, t, res2.Url)
		defer forward.Close()
		fmt.Fprint(forward, "GET / HTTP/1.0\r\n\r\n")
		answer, err := io.ReadAll(forward)
		if err != nil || !strings.Contains(string(answer), "hello from") {
			t.Errorf("port-forward: %q %v", answer, err)
		}
		dialed, err := s.e.DialPort(ctx, pod, 8080)
		if err != nil {
			t.Fatal(err)
		}
		defer dialed.Close()
		fmt.Fprint(dialed, "GET / HTTP/1.0\r\n\r\n")
		if answer, err := io.ReadAll(dialed); err != nil || !strings.Contains(string(answer), "hello from") {
			t.Errorf("dialed: %q %v", answer, err)
		}
		if _, err := s.e.DialPort(ctx, pod, 9); !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, stream.ErrRefused) {
			t.Errorf("an unused port: %v", err)
		}
		if _, err := s.e.DialPort(ctx, "nobody", 9); grpccode.Of(err) != codes.NotFound {
			t.Errorf("a port of a missing pod: %v", err)
		}
		for _, port := range []int{0, -1, 65536} {
			if _, err := s.e.DialPort(ctx, pod, port); grpccode.Of(err) != codes.InvalidArgument {
				t.Errorf("port %d: %v", port, err)
			}
		}
		console, err := s.e.Console(ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		dialURL(ctx, t, console.URL()).Close()
	})

	t.Run("a server that never closes", func(t *testing.T) {
		script := "httpd -p 9100 -h /tmp; kill -STOP $(pidof httpd)" // its connections stay in the backlog
		if out, errOut, err := s.ExecSync(ctx, ids["shell"], []string{"sh", "-c", script}, testdeadline.For(20*time.Second)); err != nil {
			t.Fatalf("%v: %s%s", err, out, errOut)
		}
		open := func() int {
			list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", facts.ShimPID))
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		before := open()
		for range 6 {
			conn, err := s.e.DialPort(ctx, pod, 9100)
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		for limit := time.Now().Add(testdeadline.For(10 * time.Second)); open() > before+1 && time.Now().Before(limit); {
			time.Sleep(20 * time.Millisecond)
		}
		if after := open(); after > before+1 { // one may have another origin
			t.Errorf("the shim has %d open files, %d before", after, before)
		}
	})

	t.Run("pause", func(t *testing.T) {
		for range 2 {
			if err := s.e.PausePod(ctx, pod); err != nil {
				t.Fatal(err)
			}
		}
		if f, _ := s.PodFacts(ctx, pod); f.State != "paused" {
			t.Errorf("state %q", f.State)
		}
		if times, now := s.e.Pauses(pod); times != 1 || !now {
			t.Errorf("paused %d times, now %v", times, now)
		}
		if _, err := s.e.DialPort(ctx, pod, 8080); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a port of a paused pod: %v", err)
		}
		for range 2 {
			if err := s.e.ResumePod(ctx, pod); err != nil {
				t.Fatal(err)
			}
		}
		if times, now := s.e.Pauses(pod); times != 1 || now {
			t.Errorf("after the pause: paused %d times, now %v", times, now)
		}
		if body, err := get(); err != nil || body == "" {
			t.Errorf("after the pause: %q %v", body, err)
		}
	})

	t.Run("stats", func(t *testing.T) {
		st, err := s.PodSandboxStats(ctx, pod)
		if err != nil || len(st.Linux.Containers) != 2 || st.Linux.Memory.UsageBytes.Value == 0 || st.Linux.Cpu.UsageCoreNanoSeconds.Value == 0 {
			t.Errorf("%v %v", st, err)
		}
	})

	t.Run("usage that the guest does not report", func(t *testing.T) {
		const written = 48 << 20 // the guest's page cache of a written file counts for the host, and not for the container
		word := func() uint64 {
			st, err := s.PodSandboxStats(ctx, pod)
			if err != nil {
				t.Fatal(err)
			}
			return st.Linux.Memory.WorkingSetBytes.Value
		}
		guest := word()
		meter, err := s.e.Meter(pod)
		if err != nil {
			t.Fatal(err)
		}
		host, known := meter.HeldMemory()
		if !known || host < 8<<20 {
			t.Fatalf("the host counts %d, %t", host, known)
		}
		t.Logf("the guest reports %d MiB, the host %d", guest>>20, host>>20)
		fill := []string{"sh", "-c", fmt.Sprintf("head -c %d /dev/zero >/big && sync", written)}
		if out, errOut, err := s.ExecSync(ctx, ids["shell"], fill, testdeadline.For(60*time.Second)); err != nil {
			t.Fatalf("%q %q %v", out, errOut, err)
		}
		after, _ := meter.HeldMemory()
		now := word()
		t.Logf("then the guest reports %d MiB, the host %d", now>>20, after>>20)
		if now > guest+written/4 || after < host+written*3/4 {
			t.Errorf("the guest reported %d and now %d, the host %d and %d", guest, now, host, after)
		}
		if disk := meter.HeldDisk(); disk < written {
			t.Errorf("the host counts %d bytes of %d written ones", disk, written)
		}
	})

	if err := s.StopContainer(ctx, ids["web"], 2); err != nil {
		t.Fatal(err)
	}
	if words, _ := os.ReadFile(last); string(words) != "words\n" {
		t.Errorf("termination message: %q", words)
	}
	if err := s.RemovePodSandbox(ctx, pod); err != nil {
		t.Fatal(err)
	}
	if _, err := get(); err == nil {
		t.Error("the published port outlives its pod")
	}
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	enginetest.NothingLeft(t, s.o)
}

func dialURL(ctx context.Context, t *testing.T, address string) net.Conn {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "bulkhead+unix" {
		t.Fatalf("URL %q: %v", address, err)
	}
	conn, err := stream.Dial(ctx, u.Path, u.Query().Get("token"))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
