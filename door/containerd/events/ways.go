package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strings"

	eventsapi "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// errRefused is matched by the error of an event that containerd does not accept.
var errRefused = errors.New("refused")

// Containerd says where one containerd takes events.
type Containerd struct {
	Namespace string
	TTRPC     string // address of the event service, which every version from 1.3 on has
	Binary    string // containerd's program, which publishes events where TTRPC is empty
	Address   string // of the gRPC API, for Binary
}

// New returns the publisher to c. The caller closes it.
func New(c Containerd, log *slog.Logger) *Publisher {
	if c.TTRPC != "" {
		return newPublisher(c.Namespace, &service{address: strings.TrimPrefix(c.TTRPC, "unix://")}, log)
	}
	return newPublisher(c.Namespace, program(c), log)
}

// service sends events to containerd's event service, over a connection that it renews.
type service struct {
	address string
	client  *ttrpc.Client
}

func (s *service) send(ctx context.Context, e *types.Envelope) error {
	if s.client == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", s.address)
		if err != nil {
			return fmt.Errorf("connect to containerd: %w", err)
		}
		s.client = ttrpc.NewClient(conn)
	}
	_, err := eventsapi.NewTTRPCEventsClient(s.client).Forward(ctx, &eventsapi.ForwardRequest{Envelope: e})
	if err == nil {
		return nil
	}
	if st, ok := status.FromError(err); ok && st.Code() != codes.Unavailable && st.Code() != codes.DeadlineExceeded {
		return fmt.Errorf("containerd %w the event: %w", errRefused, err)
	}
	s.close()
	return fmt.Errorf("forward to containerd: %w", err)
}

func (s *service) close() {
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
}

// program sends events by running containerd's program.
type program Containerd

func (p program) send(ctx context.Context, e *types.Envelope) error {
	event, err := proto.Marshal(e.Event)
	if err != nil {
		return fmt.Errorf("pack the event: %w", err)
	}
	cmd := exec.CommandContext(ctx, p.Binary, "--address", p.Address, "publish", "--topic", e.Topic, "--namespace", p.Namespace)
	cmd.Stdin = bytes.NewReader(event)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s publish: %w: %.200s", p.Binary, err, bytes.TrimSpace(out))
	}
	return nil
}

func (program) close() {}
