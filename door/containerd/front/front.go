// Package front is the program containerd-shim-bulkhead-v2, apart from its Runtime: containerd runs it to start a pod, to
// clean up after one, and to ask for its features. One process of it, the front, serves each pod.
package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go/features"

	"github.com/bulkhead-project/bulkhead/door/containerd"
	"github.com/bulkhead-project/bulkhead/door/containerd/bootstrap"
	"github.com/bulkhead-project/bulkhead/door/containerd/options"
	"github.com/bulkhead-project/bulkhead/internal/version"
)

// Name is the runtime's name in containerd.
const Name = "io.containerd.bulkhead.v2"

// Times of the actions.
const (
	// startDeadline bounds Start. Containerd's clients wait longer.
	startDeadline = 30 * time.Second
	// deleteDeadline bounds Delete. Containerd kills the program after 5 seconds.
	deleteDeadline = 4500 * time.Millisecond
	// patientDeadline bounds a Delete without a caller.
	patientDeadline = 10 * time.Minute
)

// Program is one run of the program.
type Program struct {
	// Open returns the Runtime for the containers of the invocation's namespace and containerd.
	Open func(inv bootstrap.Invocation, log *slog.Logger) (containerd.Runtime, error)
	// Features describe the Runtime.
	Features func() *features.Features

	Args           []string // without the program's name
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Run runs the program, and returns its exit status.
func (p Program) Run() int {
	if err := p.run(); err != nil {
		// Containerd shows this text to its user.
		fmt.Fprintf(p.Stderr, "containerd-shim-bulkhead-v2: %s", err)
		return 1
	}
	return 0
}

func (p Program) run() error {
	inv, err := bootstrap.Parse(p.Args)
	switch {
	case err != nil:
		return err
	case inv.Version:
		fmt.Fprintf(p.Stdout, "containerd-shim-bulkhead-v2 %s\n", version.Version)
		return nil
	case inv.Info:
		return p.info()
	case inv.Action == bootstrap.Start:
		return p.start(inv)
	case inv.Action == bootstrap.Delete:
		return p.delete(inv)
	}
	return p.serve(inv)
}

// optionsName is the file in a bundle with the runtime options, from Start to the front.
const optionsName = "bulkhead-options.json"

// start finds or starts the front of the bundle in the working directory, and prints its address.
func (p Program) start(inv bootstrap.Invocation) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startDeadline)
	defer cancel()
	params, err := bootstrap.ReadParams(p.Stdin, inv)
	if err != nil {
		return err
	}
	inv.Debug = params.Debug
	group, err := bootstrap.GroupOf("config.json", inv.ID)
	if err != nil {
		return err
	}
	path, err := bootstrap.SocketPath(params.SocketDir, inv, group)
	if err != nil {
		return err
	}
	socket, err := bootstrap.Listen(ctx, path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, socket.Close(ctx))
		}
	}()
	if socket.File != nil {
		if err := p.launch(inv, params, socket); err != nil {
			return err
		}
	}
	if err := os.WriteFile(bootstrap.AddressName, []byte(bootstrap.Address(path)), 0o600); err != nil {
		return fmt.Errorf("write the address for containerd: %w", err)
	}
	return bootstrap.WriteAddress(p.Stdout, bootstrap.FormFor(params, inv.Publish), bootstrap.Address(path))
}

// launch starts a front. A front that fails ends with the socket's removal or at its deadline.
func (p Program) launch(inv bootstrap.Invocation, params bootstrap.Params, socket bootstrap.Socket) error {
	o, err := options.Find(params.Extensions)
	if err != nil {
		return err
	}
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := os.WriteFile(optionsName, b, 0o600); err != nil {
		return fmt.Errorf("write the runtime options: %w", err)
	}
	process, err := bootstrap.Daemon(inv, socket, bootstrap.Environment(os.Environ(), params))
	if err != nil {
		return err
	}
	err = bootstrap.Demote(process.Pid)
	if err == nil && o.ShimCgroup != "" {
		err = bootstrap.JoinCgroup(process.Pid, o.ShimCgroup)
	}
	if err != nil {
		_ = process.Kill()
	}
	return err
}

// patient is the environment variable that marks a Delete without a caller.
const patient = "BULKHEAD_PATIENT_DELETE"

// delete removes the container of a bundle after its front's death, or after its orderly removal, which leaves nothing to
// remove. It prints how the container ended. If the removal takes too long, another process finishes it.
func (p Program) delete(inv bootstrap.Invocation) error {
	deadline := deleteDeadline
	if os.Getenv(patient) != "" {
		deadline = patientDeadline
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	bundle, err := filepath.Abs(inv.Bundle)
	if err != nil {
		return err
	}
	exit := bootstrap.ReadExit(bundle)
	rt, err := p.Open(inv, slog.New(slog.NewTextHandler(p.Stderr, nil)))
	if err == nil {
		err = bootstrap.RemoveDead(ctx, bundle)
		err = errors.Join(err, containerd.Remove(ctx, rt, inv.ID, bundle))
	}
	if ctx.Err() != nil && deadline == deleteDeadline {
		err = errors.Join(err, p.goOn())
	}
	if err != nil {
		fmt.Fprintf(p.Stderr, "clean up %s: %s\n", inv.ID, err) // containerd logs it
	}
	return bootstrap.WriteExit(p.Stdout, exit)
}

// goOn runs the program again, and does not wait for its end. Containerd removes the bundle meanwhile.
func (p Program) goOn() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("remove it in the background: %w", err)
	}
	cmd := exec.Command(self, p.Args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", append(os.Environ(), patient+"=1"), &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("remove it in the background: %w", err)
	}
	return nil
}
