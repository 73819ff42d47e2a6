package cri

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// oneSize is a terminal that changes its size once.
type oneSize chan remotecommand.TerminalSize

func (s oneSize) Next() *remotecommand.TerminalSize {
	if size, ok := <-s; ok {
		return &size
	}
	return nil
}

// TestStreams: kubectl's clients for exec and attach work with the door's URLs.
func TestStreams(t *testing.T) {
	ctx := testdeadline.Context(t, 30*time.Second)
	s := serveStreams(ctx, t)
	dialers := map[string]func(at string) (remotecommand.Executor, error){
		"websocket": func(at string) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutorForProtocols(&rest.Config{}, "GET", at, "v4.channel.k8s.io")
		},
		"spdy": func(at string) (remotecommand.Executor, error) {
			u, err := url.Parse(at)
			if err != nil {
				return nil, err
			}
			return remotecommand.NewSPDYExecutor(&rest.Config{}, "POST", u)
		},
	}
	for _, tt := range []struct {
		name, stdout, stderr string
		exec, tty            bool
		code                 int
	}{
		{name: "exec", exec: true, stdout: "words\n", stderr: "hello", code: 3},
		{name: "exec with a terminal", exec: true, tty: true, stdout: "80x25 words\n", code: 3},
		{name: "attach", stdout: "words\n", stderr: "hello"},
		{name: "attach with a terminal", tty: true, stdout: "80x25 words\n"},
	} {
		for protocol, dial := range dialers {
			t.Run(tt.name+" by "+protocol, func(t *testing.T) {
				before := len(s.requests())
				at, err := s.prepare(ctx, tt.exec, tt.tty)
				if err != nil {
					t.Fatal(err)
				}
				if len(s.requests()) != before {
					t.Fatal("a stream was opened before its client connected")
				}
				client, err := dial(at)
				if err != nil {
					t.Fatal(err)
				}
				var stdout, stderr bytes.Buffer
				options := remotecommand.StreamOptions{Stdin: strings.NewReader("words\n"), Stdout: &stdout, Stderr: &stderr}
				if tt.tty {
					sizes := make(oneSize, 1)
					sizes <- remotecommand.TerminalSize{Width: 80, Height: 25}
					defer close(sizes)
					options.Tty, options.Stderr, options.TerminalSizeQueue = true, nil, sizes
				}
				err = client.StreamWithContext(ctx, options)
				var exit interface{ ExitStatus() int }
				if (tt.code != 0) != errors.As(err, &exit) || tt.code != 0 && exit.ExitStatus() != tt.code {
					t.Errorf("ended with %v, want code %d", err, tt.code)
				}
				if stdout.String() != tt.stdout || stderr.String() != tt.stderr {
					t.Errorf("stdout %q, stderr %q", &stdout, &stderr)
				}
				opened := s.requests()[before:]
				if len(opened) != 1 || opened[0].GetContainerId() != s.container || opened[0].GetStart() != tt.exec {
					t.Errorf("opened %v", opened)
				}
				if again, err := dial(at); err != nil || again.StreamWithContext(ctx, options) == nil || len(s.requests()) != before+1 {
					t.Errorf("a URL was used twice: %v", err)
				}
			})
		}
	}
}

// TestPortForward: kubectl's client for port-forward works with two ports at once.
func TestPortForward(t *testing.T) {
	ctx := testdeadline.Context(t, 30*time.Second)
	s := serveStreams(ctx, t)
	res, err := s.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: s.pod, Port: []int32{80, 443}})
	if err != nil {
		t.Fatal(err)
	}
	ports, end := critest.Forward(ctx, t, res.GetUrl(), ":80", ":443")
	defer end()
	for _, port := range ports {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port.Local))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "words")
		_ = conn.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(conn)
		conn.Close()
		if want := fmt.Sprintf("%d: words", port.Remote); string(got) != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
}
