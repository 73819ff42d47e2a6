package pod

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// verb returns a command that makes one call for each of its pods.
func verb(a *app.App, name, short, example string) *cobra.Command {
	var t app.Targets
	cmd := &cobra.Command{
		Use: name + " POD…", Short: short, Example: example, Args: t.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.EachTarget(cmd.Context(), t, args, func(ref string) (string, error) {
				return a.Change(cmd.Context(), "POST", a.PodPath(ref, name), nil, nil)
			})
		},
	}
	t.Add(cmd)
	return cmd
}

// Start is the command start.
func Start(a *app.App) *cobra.Command {
	return verb(a, "start", "Start stopped pods again, each in a new VM", "  bulkhead start web")
}

// Pause is the command pause.
func Pause(a *app.App) *cobra.Command {
	return verb(a, "pause", "Pause the VMs of pods", "  bulkhead pause web")
}

// Resume is the command resume.
func Resume(a *app.App) *cobra.Command {
	return verb(a, "resume", "Resume paused pods", "  bulkhead resume web")
}
