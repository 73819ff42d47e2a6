package pod

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// verb is a command that does one thing to each of the pods named.
func verb(a *app.App, name, short, example string) *cobra.Command {
	return &cobra.Command{
		Use: name + " POD…", Short: short, Example: example, Args: app.AtLeast("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.EachPod(args, func(ref string) error {
				return a.Client.Call(cmd.Context(), "POST", app.PodPath(ref, name), nil, nil, nil)
			})
		},
	}
}

// Start is the command start.
func Start(a *app.App) *cobra.Command {
	return verb(a, "start", "Start a stopped pod again, in a new machine", "  bulkhead start web")
}

// Pause is the command pause.
func Pause(a *app.App) *cobra.Command {
	return verb(a, "pause", "Stop a pod's machine where it stands", "  bulkhead pause web")
}

// Resume is the command resume.
func Resume(a *app.App) *cobra.Command {
	return verb(a, "resume", "Let a paused pod go on", "  bulkhead resume web")
}
