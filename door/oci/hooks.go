package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/internal/printable"
)

// hookOutput bounds the output of a hook in an error.
const hookOutput = 2000

// hooks runs the hooks of a point in order, until one fails.
func (r *record) hooks(ctx context.Context, all containerv1.Hooks, point containerv1.Point, status specs.ContainerState) error {
	if len(all[point]) == 0 {
		return nil
	}
	state, err := r.hookState(status)
	if err != nil {
		return err
	}
	for i, h := range all[point] {
		if err := runHook(ctx, h, state); err != nil {
			return fmt.Errorf("error running hook #%d: error running %s hook %s: %w", i, point, h.Path, err)
		}
	}
	return nil
}

// poststop runs the hooks for the end of a container. One that fails does not keep the others from running.
func (r *record) poststop(ctx context.Context, log *slog.Logger) {
	for _, h := range r.Hooks[containerv1.Poststop] {
		one := containerv1.Hooks{containerv1.Poststop: {h}}
		if err := r.hooks(ctx, one, containerv1.Poststop, specs.StateStopped); err != nil {
			log.Warn("a hook failed", "container", r.ID, "error", err)
		}
	}
}

// runHook runs a hook with the container's state on its stdin.
func runHook(ctx context.Context, h containerv1.Hook, state []byte) error {
	if h.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.Timeout)
		defer cancel()
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, h.Path)
	if cmd.Args = h.Args; len(cmd.Args) == 0 {
		cmd.Args = []string{h.Path}
	}
	cmd.Env = h.Env
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(state), &said, &said, time.Second
	err := cmd.Run()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && h.Timeout > 0 {
		return fmt.Errorf("hook ran past specified timeout of %.1fs", h.Timeout.Seconds())
	}
	if err == nil {
		return nil
	}
	text := strings.TrimSpace(said.String())
	return fmt.Errorf("%w, stdout+stderr: %s", err, printable.Text(text[:min(len(text), hookOutput)]))
}
