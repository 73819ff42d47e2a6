package client

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/unit"
)

// StartDetached is the Starter of a door with a parent that waits for all its descendants, as podman's conmon does.
// Systemd starts the engine, so that it is not one of them. Without systemd, StartDetached is StartProcess.
func StartDetached(ctx context.Context, r dirs.Roots) error {
	if !unit.Sees() {
		return StartProcess(ctx, r)
	}
	exe, log, err := prepare(r)
	if err != nil {
		return err
	}
	defer log.Close()
	s := unit.Service{
		Name: fmt.Sprintf("bulkhead-engine-%d.service", os.Getpid()), Description: "Bulkhead's engine", Program: exe, Log: log.Name(),
		Environment: append(shown(os.Environ()), "BULKHEAD_DATA="+r.Data, "BULKHEAD_STATE="+r.State),
	}
	if err := s.Start(ctx); err != nil {
		return failed(log, err)
	}
	return nil
}

// shown returns the variables that an engine uses. Every user can read a unit's environment, so the others stay out.
func shown(environment []string) []string {
	return slices.DeleteFunc(environment, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		ours := strings.HasPrefix(name, "BULKHEAD_") && name != ReadyFD
		return !ours && !strings.HasPrefix(name, "XDG_") && !slices.Contains([]string{"HOME", "PATH", "TMPDIR"}, name)
	})
}
