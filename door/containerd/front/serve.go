package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"time"

	containerdlog "github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/door/containerd"
	"github.com/bulkhead-project/bulkhead/door/containerd/bootstrap"
	"github.com/bulkhead-project/bulkhead/door/containerd/events"
	"github.com/bulkhead-project/bulkhead/door/containerd/options"
)

// Times of the front's end.
const (
	// unused is the time after which a front without any container ends. Containerd creates one at once, unless it dies.
	unused = 2 * time.Minute
	// answers is the time for the last answers, until their clients leave.
	answers = 3 * time.Second
	// lastEvents is the time for the last events, if containerd is away.
	lastEvents = 10 * time.Second
)

// serve is the front: it serves the socket that start has created, until its last container is gone.
func (p Program) serve(inv bootstrap.Invocation) (err error) {
	file, err := bootstrap.Inherit()
	if err != nil {
		return err
	}
	signal.Ignore(unix.SIGPIPE, unix.SIGHUP, unix.SIGINT)
	stop, cancel := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer cancel()
	log := newLog(inv)
	socket := bootstrap.Socket{Path: inv.Socket, File: file}
	serving := false
	defer func() {
		if serving {
			return // closed below
		}
		ctx, cancel := context.WithTimeout(context.Background(), answers)
		defer cancel()
		err = errors.Join(err, socket.Close(ctx))
	}()
	l, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("serve %s: %w", inv.Socket, err)
	}
	defer l.Close()
	rt, err := p.Open(inv, log)
	if err != nil {
		return fmt.Errorf("serve %s: %w", inv.Socket, err)
	}
	callers := &clients{inner: ttrpc.UnixSocketRequireSameUser()}
	server, err := ttrpc.NewServer(ttrpc.WithServerHandshaker(callers))
	if err != nil {
		return fmt.Errorf("serve %s: %w", inv.Socket, err)
	}
	publisher := events.New(events.Containerd{
		Namespace: inv.Namespace, TTRPC: os.Getenv(bootstrap.TTRPCAddress), Binary: inv.Publish, Address: inv.Address,
	}, log)
	services := containerd.New(containerd.Options{
		Namespace: inv.Namespace, Runtime: rt, Events: publisher, Log: log, Defaults: readOptions(log), Shutdown: sync.OnceFunc(cancel),
	})
	services.Register(server)
	timer := time.AfterFunc(unused, services.EndIfIdle)
	defer timer.Stop()

	serving = true
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), l) }()
	select {
	case <-stop.Done():
		err = nil
	case err = <-served:
	}
	// The parts end in order: no new client, the last answers, the last output of loggers, the last events.
	ctx, cancel := context.WithTimeout(context.Background(), answers)
	defer cancel()
	err = errors.Join(err, socket.Close(ctx))
	_ = l.Close()
	callers.wait(ctx)
	_ = server.Close() // the clients that have not left
	services.Close()
	ctx, cancel = context.WithTimeout(context.Background(), lastEvents)
	defer cancel()
	return errors.Join(err, publisher.Close(ctx))
}

// readOptions reads the runtime options that start has written.
func readOptions(log *slog.Logger) (o options.Options) {
	b, err := os.ReadFile(optionsName)
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil {
		log.Error("read the runtime options", "error", err)
	}
	return o
}

// newLog returns a log on standard error, which is containerd's log fifo.
func newLog(inv bootstrap.Invocation) *slog.Logger {
	level := slog.LevelInfo
	if inv.Debug {
		level = slog.LevelDebug
	}
	containerdlog.L.Logger.SetOutput(lossy{}) // ttrpc's
	log := slog.New(slog.NewTextHandler(lossy{}, &slog.HandlerOptions{Level: level}))
	return log.With("runtime", Name, "namespace", inv.Namespace, "id", inv.ID)
}

// lossy writes to standard error. A message is lost if the fifo is full, because containerd does not read it.
type lossy struct{}

func (lossy) Write(b []byte) (int, error) {
	_, _ = unix.Write(unix.Stderr, b)
	return len(b), nil
}
