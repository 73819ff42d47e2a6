// Command bulkhead-engine is the engine of one user. The commands that need
// it start it; nobody installs or configures it.
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
	"github.com/bulkhead-project/bulkhead/internal/unit"
	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// idle is how long an engine stays when there is nothing to do;
// BULKHEAD_IDLE names another duration.
const idle = 3 * time.Minute

// logLimit bounds the engine's log, in bytes.
const logLimit = 4 << 20

func main() {
	log := boundedlog.New(os.Stderr, logLimit)
	logrus.SetLevel(logrus.ErrorLevel) // the image library tells its retries there
	logrus.SetOutput(log)              // and ttrpc what a shim says that it should not
	err := confine.Without(confine.NeverUsed)
	if err == nil {
		err = serve(log, os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bulkhead-engine:", err)
		os.Exit(1)
	}
}

// serve opens the door that the arguments name: the commands' without any.
func serve(log io.Writer, args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	signal.Ignore(syscall.SIGHUP)
	if len(args) > 0 && args[0] == "cri" {
		return serveCRI(ctx, args[1:])
	}
	return supervise(ctx, log)
}

// supervise runs the engine and tells who started it when it is ready.
func supervise(ctx context.Context, log io.Writer) error {
	ready, err := readiness()
	if err != nil {
		return err
	}
	o := run.Options{Idle: idle, Logger: slog.New(pacedlog.New(slog.NewTextHandler(log, nil)))}
	if o.Roots, err = dirs.Default(dirs.Run); err != nil {
		return err
	}
	// Every command brings its own: what the first one had is for nobody else.
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

// enterUnit moves the engine into a unit of systemd's, where one can be had: there the limits of
// pods' cgroups hold, and the end of the session that has asked for the engine is not theirs.
// Without one the engine works as before.
func enterUnit(ctx context.Context, r dirs.Roots, log *slog.Logger) {
	err := unit.Enter(ctx, group.Name(r, client.Instance)+".scope")
	switch {
	case errors.Is(err, unit.ErrNone):
		log.Info("the engine stays in its session", "reason", err)
	case err != nil:
		log.Warn("the engine stays in its session: pods may have no limits on the host", "error", err)
	case os.Geteuid() != 0:
		me, err := user.Current()
		if err == nil && !unit.Lingers(me.Username) {
			log.Warn("pods end with this user's last session (loginctl enable-linger " + me.Username + " lets them go on)")
		}
	}
}

// readiness is what writes to the descriptor that client.ReadyFD names, if any.
// No process that is started meanwhile, and outlives this one, may hold it open.
func readiness() (func(), error) {
	text := os.Getenv(client.ReadyFD)
	if text == "" {
		return func() {}, nil // started by hand
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
