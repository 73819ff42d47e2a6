package probe_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// closedPort returns a port without a listener.
func closedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// broken is a Dialer that cannot reach the pod.
func broken(context.Context, int) (net.Conn, error) {
	return nil, fmt.Errorf("%w: the shim is gone", probe.ErrNotAsked)
}

// lame is a Dialer that would need more time to reach the pod.
func lame(ctx context.Context, _ int) (net.Conn, error) {
	<-ctx.Done()
	time.Sleep(10 * time.Millisecond) // a caller that does not wait misses the reason
	return nil, fmt.Errorf("%w: no other shim yet: %w", probe.ErrNotAsked, ctx.Err())
}

// deaf is a Dialer to a pod that does not answer.
func deaf(ctx context.Context, _ int) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestTCP(t *testing.T) {
	t.Parallel()
	open, closed := serveHTTP(t, answer(200, "")), closedPort(t)
	for _, test := range []struct {
		name string
		dial probe.Dialer
		port int
		want probe.Result
		has  string
	}{
		{name: "open", dial: local, port: open, want: probe.Success},
		{name: "closed", dial: local, port: closed, want: probe.Failure,
			has: fmt.Sprintf("dial tcp 127.0.0.1:%d: connect: connection refused", closed)},
		{name: "silent", dial: deaf, port: open, want: probe.Failure, has: "deadline exceeded"},
		{name: "another family", dial: probe.To("::1"), port: open, want: probe.Failure, has: "dial tcp [::1]:"},
		{name: "not asked", dial: broken, port: open, want: probe.Unknown},
		{name: "no address", dial: probe.To(""), port: open, want: probe.Unknown},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		got, message, err := probe.TCP(ctx, test.dial, test.port)
		cancel()
		if got != test.want || !strings.Contains(message, test.has) || (err != nil) != (test.want == probe.Unknown) {
			t.Errorf("%s: %v %q, %v", test.name, got, message, err)
		}
	}
}

// TestNotAsked: an unreachable pod is an error of every action. A pod that does not answer is a failure.
func TestNotAsked(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]probe.Dialer{"broken": broken, "lame": lame, "deaf": deaf, "refused": probe.To("127.0.0.1")} {
		port := closedPort(t)
		for action, ask := range map[string]func(context.Context) (probe.Result, string, error){
			"http": func(ctx context.Context) (probe.Result, string, error) {
				return probe.HTTP(ctx, dial, &corev1.HTTPGetAction{Path: "/"}, port, "127.0.0.1")
			},
			"tcp": func(ctx context.Context) (probe.Result, string, error) { return probe.TCP(ctx, dial, port) },
			"grpc": func(ctx context.Context) (probe.Result, string, error) {
				return probe.GRPC(ctx, dial, &corev1.GRPCAction{Port: int32(port)}, "127.0.0.1")
			},
		} {
			patience := time.Second
			if name == "lame" {
				patience /= 10
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			got, message, err := ask(ctx)
			cancel()
			if name == "broken" || name == "lame" {
				if got != probe.Unknown || !errors.Is(err, probe.ErrNotAsked) {
					t.Errorf("%s, %s: %v %q, %v", action, name, got, message, err)
				}
				continue
			}
			if got != probe.Failure || err != nil || message == "" || name == "refused" && !strings.Contains(message, "connection refused") {
				t.Errorf("%s, %s: %v %q, %v", action, name, got, message, err)
			}
		}
	}
}

func TestPort(t *testing.T) {
	t.Parallel()
	container := &corev1.Container{Name: "c",
		Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}, {Name: "a1", ContainerPort: 90}, {ContainerPort: 70}}}
	for _, test := range []struct {
		port intstr.IntOrString
		want int // 0: an error
	}{
		{port: intstr.FromInt32(1), want: 1},
		{port: intstr.FromInt32(118), want: 118},
		{port: intstr.FromInt32(65535), want: 65535},
		{port: intstr.FromInt32(0)},
		{port: intstr.FromInt32(-1)},
		{port: intstr.FromInt32(65536)},
		{port: intstr.FromString("web"), want: 80},
		{port: intstr.FromString("a1"), want: 90},
		{port: intstr.FromString("118"), want: 118},
		{port: intstr.FromString("")},
		{port: intstr.FromString("nobody")},
		{port: intstr.FromString("-1")},
		{port: intstr.FromString("65536")},
		{port: intstr.FromString("4294967376")},
		{port: intstr.FromString("0")},
		{port: intstr.IntOrString{Type: 7}},
	} {
		got, err := probe.Port(test.port, container)
		if got != test.want || (err != nil) != (test.want == 0) {
			t.Errorf("%q: %d, %v", test.port.String(), got, err)
		}
	}
}

// executor answers like a runtime.
type executor struct {
	stdout, stderr []byte
	err            error
	hangs          bool
	asked          []string
}

func (e *executor) ExecSync(ctx context.Context, _ string, cmd []string, _ time.Duration) ([]byte, []byte, error) {
	e.asked = cmd
	if e.hangs {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	return e.stdout, e.stderr, e.err
}

type exitError int

func (e exitError) Error() string   { return fmt.Sprint("exit code ", int(e)) }
func (e exitError) Exited() bool    { return true }
func (e exitError) ExitStatus() int { return int(e) }

func TestExec(t *testing.T) {
	t.Parallel()
	const limit = 10 << 10
	long := []byte(strings.Repeat("logs-123", limit))
	for _, test := range []struct {
		name   string
		run    executor
		want   probe.Result
		output string
		fails  bool
	}{
		{name: "good", run: executor{stdout: []byte("OK")}, want: probe.Success, output: "OK"},
		{name: "good, on stderr", run: executor{stdout: []byte("O"), stderr: []byte("K")}, want: probe.Success, output: "OK"},
		{name: "exit code 0 as an error", run: executor{stdout: []byte("OK"), err: exitError(0)}, want: probe.Success, output: "OK"},
		{name: "much output", run: executor{stdout: long}, want: probe.Success, output: string(long[:limit])},
		{name: "much output on both", run: executor{stdout: long[:limit-3], stderr: long}, want: probe.Success,
			output: string(long[:limit-3]) + "log"},
		{name: "bad", run: executor{stdout: []byte("Fail"), err: exitError(1)}, want: probe.Failure, output: "Fail"},
		{name: "bad, wrapped", run: executor{stdout: []byte("Fail"), err: fmt.Errorf("exec: %w", exitError(2))}, want: probe.Failure,
			output: "Fail"},
		{name: "bad with much output", run: executor{stdout: long, err: exitError(1)}, want: probe.Failure, output: string(long[:limit])},
		{name: "no such command", run: executor{stderr: []byte("not found"), err: exitError(127)}, want: probe.Failure, output: "not found"},
		{name: "too slow", run: executor{err: status.Error(codes.DeadlineExceeded, "too slow")}, want: probe.Failure,
			output: `command timed out: "cat /file" timed out after 1s`},
		{name: "runtime gone", run: executor{err: errors.New("no connection")}, want: probe.Unknown, fails: true},
		{name: "no such container", run: executor{err: status.Error(codes.NotFound, "no container")}, want: probe.Unknown, fails: true},
		{name: "not running", run: executor{err: status.Error(codes.FailedPrecondition, "exited")}, want: probe.Unknown, fails: true},
	} {
		got, output, err := probe.Exec(t.Context(), &test.run, "id", []string{"cat", "/file"}, time.Second)
		if got != test.want || output != test.output || (err != nil) != test.fails {
			t.Errorf("%s: %v %.100q, %v", test.name, got, output, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got, _, err := probe.Exec(ctx, &executor{hangs: true}, "id", []string{"cat"}, time.Second); got != probe.Unknown || err == nil {
		t.Errorf("a runtime that hangs: %v, %v", got, err)
	}
}

// TestAsk: a probe uses the handler that it names.
func TestAsk(t *testing.T) {
	t.Parallel()
	web := serveHTTP(t, echo)
	run := &executor{stdout: []byte("ran")}
	target := &probe.Target{
		Container: &corev1.Container{Name: "c", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(web)}}},
		ID:        "id", Runtime: run, Dial: local, Host: "10.0.2.15",
		Command: func(cmd []string) []string { return append([]string{"nice"}, cmd...) },
	}
	for _, test := range []struct {
		name    string
		handler corev1.ProbeHandler
		want    probe.Result
		has     string
	}{
		{name: "exec", handler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}, want: probe.Success, has: "ran"},
		{name: "http by name", handler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/x", Port: intstr.FromString("web")}},
			want: probe.Success, has: "GET /x"},
		{name: "http by number", handler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/x", Port: intstr.FromInt(web)}},
			want: probe.Success, has: "Host: 10.0.2.15:"},
		{name: "http by no name", handler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("bew")}},
			want: probe.Unknown},
		{name: "tcp", handler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}, want: probe.Success},
		{name: "tcp by no name", handler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("bew")}},
			want: probe.Unknown},
		{name: "grpc", handler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(web)}}, want: probe.Failure, has: "rpc"},
		{name: "nothing", handler: corev1.ProbeHandler{}, want: probe.Unknown},
	} {
		got, output, err := target.Probe(t.Context(), &corev1.Probe{ProbeHandler: test.handler, TimeoutSeconds: 5})
		if got != test.want || !strings.Contains(output, test.has) || (err != nil) != (test.want == probe.Unknown) {
			t.Errorf("%s: %v %q, %v", test.name, got, output, err)
		}
	}
	if strings.Join(run.asked, " ") != "nice true" {
		t.Errorf("ran %q", run.asked)
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                "",
		"cat: no such file\n":             "cat: no such file",
		"a\nb\tc\r\nd":                    "a b c  d",
		"red \x1b[31m\x07alert\x00":       "red [31malert",
		"\u202etxt.exe \u200b\u2028":      "txt.exe",
		"caf\xe9":                         "caf?",
		"größe \U0001f680":                "größe \U0001f680",
		strings.Repeat("a", 1024):         strings.Repeat("a", 1024),
		strings.Repeat("a", 1025):         strings.Repeat("a", 1021) + "...",
		strings.Repeat("ö", 600):          strings.Repeat("ö", 510) + "...",
		strings.Repeat("\n", 1<<20) + "a": "",
	} {
		got := probe.Line(in)
		if got != want || !utf8.ValidString(got) {
			t.Errorf("%.40q: %.60q, want %.60q", in, got, want)
		}
	}
}

// FuzzLine: any output becomes one bounded, printable line.
func FuzzLine(f *testing.F) {
	f.Add("a\nb")
	f.Add("\x1b]0;title\x07\xff\xfe\u202e")
	f.Add(strings.Repeat("é\u2028", 1000))
	f.Fuzz(func(t *testing.T, in string) {
		got := probe.Line(in)
		if len(got) > 1024 || !utf8.ValidString(got) || strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			t.Errorf("%q", got)
		}
	})
}
