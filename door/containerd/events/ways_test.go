package events

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// receiver is containerd's event service.
type receiver struct {
	got  chan *eventsapi.ForwardRequest
	code codes.Code
}

func (r *receiver) Forward(_ context.Context, q *eventsapi.ForwardRequest) (*emptypb.Empty, error) {
	r.got <- q
	return &emptypb.Empty{}, status.Error(r.code, "no")
}

// listen serves r at path until the returned function is called.
func listen(t *testing.T, path string, r *receiver) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	eventsapi.RegisterTTRPCEventsService(srv, r)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(context.Background(), l) }()
	return func() {
		srv.Close()
		<-ended
	}
}

// TestService: events reach containerd's service, also one that is restarted.
func TestService(t *testing.T) {
	dir, err := os.MkdirTemp("", "ev")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "t")
	r := &receiver{got: make(chan *eventsapi.ForwardRequest, 10)}
	p := New(Containerd{Namespace: "n", TTRPC: "unix://" + path}, quiet)
	publish(p, Create) // containerd is not up yet
	stop := listen(t, path, r)
	<-r.got
	stop()
	defer listen(t, path, r)()
	p.Publish(Exit, &api.TaskExit{ContainerID: "c", ExitStatus: 3})
	e := (<-r.got).Envelope
	if err := p.Close(bounded(t)); err != nil {
		t.Error(err)
	}
	var exit api.TaskExit
	if err := e.Event.UnmarshalTo(&exit); err != nil {
		t.Fatal(err)
	}
	if e.Namespace != "n" || e.Topic != Exit || e.Event.TypeUrl != "containerd.events.TaskExit" || exit.ExitStatus != 3 {
		t.Errorf("got %v, %v", e, &exit)
	}
}

// TestServiceRefuses: an event that containerd refuses is lost, and the next one is sent.
func TestServiceRefuses(t *testing.T) {
	dir, err := os.MkdirTemp("", "ev")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &receiver{got: make(chan *eventsapi.ForwardRequest, 10), code: codes.InvalidArgument}
	defer listen(t, filepath.Join(dir, "t"), r)()
	p := New(Containerd{Namespace: "n", TTRPC: filepath.Join(dir, "t")}, quiet)
	publish(p, Create)
	if err := p.Close(bounded(t)); err == nil || len(r.got) != refusals {
		t.Errorf("Close: got %v after %d attempts, want an error after %d", err, len(r.got), refusals)
	}
}

// TestProgram: without a service, containerd's program publishes the event.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "containerd")
	script := "#!/bin/sh\ncd " + dir + "\n[ -e one ] || { touch one; echo away >&2; exit 1; }\necho \"$@\" >args\ncat >stdin\n"
	if err := os.WriteFile(binary, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	p := New(Containerd{Namespace: "n", Binary: binary, Address: "/a"}, quiet)
	publish(p, OOM)
	if err := p.Close(bounded(t)); err != nil {
		t.Fatal(err)
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if want := "--address /a publish --topic /tasks/oom --namespace n\n"; err != nil || string(args) != want {
		t.Errorf("arguments: got %q, %v, want %q", args, err, want)
	}
	stdin, err := os.ReadFile(filepath.Join(dir, "stdin"))
	if err != nil || !strings.Contains(string(stdin), "containerd.events.TaskOOM") {
		t.Errorf("standard input: got %q, %v", stdin, err)
	}
}
