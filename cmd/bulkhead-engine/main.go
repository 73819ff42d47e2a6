// Command bulkhead-engine is the engine of one user. Commands start it when they need it; it needs no installation
// or configuration.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/bulkhead-project/bulkhead/door/run"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/door/setup"
	"github.com/bulkhead-project/bulkhead/engine/group"
	"github.com/bulkhead-project/bulkhead/internal/boundedlog"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/pacedlog"
	"github.com/bulkhead-project/bulkhead/internal/sdnotify"
	"github.com/bulkhead-project/bulkhead/internal/unit"
	"github.com/bulkhead-project/bulkhead/internal/userns"
	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// idle is the time without work after which an engine exits; BULKHEAD_IDLE sets another duration.
const idle = 3 * time.Minute

// logLimit bounds the engine's log, in bytes.
const logLimit = 4 << 20

func main() {
	log := boundedlog.New(os.Stderr, logLimit)
	logrus.SetLevel(logrus.ErrorLevel) // the image library logs retries there
	logrus.SetOutput(log)              // and ttrpc logs errors of a shim
	err := confine.Without(confine.NeverUsed)
	if err == nil {
		err = serve(log, os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bulkhead-engine:", err)
		os.Exit(1)
	}
}

// serve opens the door in the arguments: the commands' door without any.
func serve(log io.Writer, args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	signal.Ignore(syscall.SIGHUP)
	if len(args) > 0 && args[0] == "cri" {
		return serveCRI(ctx, args[1:])
	}
	return supervise(ctx, log)
}

// supervise runs the engine and notifies its parent process when it is ready.
func supervise(ctx context.Context, log io.Writer) error {
	ready, err := readiness()
	if err != nil {
		return err
	}
	o := run.Options{Idle: idle, Logger: slog.New(pacedlog.New(slog.NewTextHandler(log, nil)))}
	if o.Roots, err = dirs.Default(dirs.Run); err != nil {
		return err
	}
	// Every command sends its own environment. The first one's must not serve others.
	if o.Environment, err = api.TakeEnvironment(); err != nil {
		return err
	}
	if text := os.Getenv("BULKHEAD_IDLE"); text != "" {
		if o.Idle, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("BULKHEAD_IDLE: %w", err)
		}
	}
	if o.NoForks, o.Tenant, err = setup.Warm(os.Getenv("BULKHEAD_WARM")); err != nil {
		return fmt.Errorf("BULKHEAD_WARM: %w", err)
	}
	if o.DefaultMemory, o.DefaultVCPUs, err = setup.Size("", ""); err != nil {
		return err
	}
	enterUnit(ctx, o.Roots, o.Logger)
	return run.Run(ctx, o, ready)
}

// enterUnit moves the engine into a systemd unit if possible. There the limits of pods' cgroups work, and the pods
// survive the end of the session. Without a unit the engine works without that.
func enterUnit(ctx context.Context, r dirs.Roots, log *slog.Logger) {
	err := unit.Enter(ctx, group.Name(r, client.Instance)+".scope")
	switch {
	case errors.Is(err, unit.ErrNone):
		log.Info("the engine stays in its session", "reason", err)
	case err != nil:
		log.Warn("the engine stays in its session: pods may have no limits on the host", "error", err)
	case !userns.HostRoot():
		me, err := user.Current()
		if err == nil && !unit.Lingers(me.Username) {
			log.Warn("pods end with this user's last session (loginctl enable-linger " + me.Username + " lets them go on)")
		}
	}
}

// readiness returns the function that writes to the descriptor in client.ReadyFD, or else notifies systemd, if systemd has
// started the engine. Other processes must not inherit the descriptor.
func readiness() (func(), error) {
	systemd, err := sdnotify.FromEnvironment()
	if err != nil {
		return nil, err
	}
	text := os.Getenv(client.ReadyFD)
	if text == "" {
		return func() {
			if err := systemd.Send(sdnotify.Ready); err != nil {
				slog.Warn(err.Error())
			}
		}, nil
	}
	fd, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", client.ReadyFD, err)
	}
	if err := os.Unsetenv(client.ReadyFD); err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fd)
	return func() {
		f := os.NewFile(uintptr(fd), "ready")
		fmt.Fprintln(f, "ready")
		f.Close()
	}, nil
}
