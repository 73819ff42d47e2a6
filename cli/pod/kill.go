package pod

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Kill is the command kill.
func Kill(a *app.App) *cobra.Command {
	var t app.Targets
	var signal, container string
	cmd := &cobra.Command{
		Use:   "kill POD…",
		Short: "Send a signal to the first processes of pods' containers",
		Long: `Send a signal to the first process of each container of a pod that runs, or of one. What
ends by it is started again as the pod's restartPolicy says; bulkhead stop ends a pod.`,
		Example: `  bulkhead kill web
  bulkhead kill -s HUP -c nginx web`,
		Args: t.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := signalNumber(signal)
			if err != nil {
				return err
			}
			req := api.KillRequest{Container: container, Signal: int(number)}
			return a.EachTarget(cmd.Context(), t, args, func(ref string) (string, error) {
				return a.Change(cmd.Context(), "POST", a.PodPath(ref, "kill"), nil, req)
			})
		},
	}
	t.Add(cmd)
	cmd.Flags().StringVarP(&signal, "signal", "s", "KILL", "signal: a name, as HUP, or a number")
	cmd.Flags().StringVarP(&container, "container", "c", "", "only this container")
	return cmd
}

// maxSignal is the last of the real-time signals.
const maxSignal = 64

// signalNumber reads HUP, SIGHUP and 1.
func signalNumber(text string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= maxSignal {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(text)
	if n := unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG")); n != 0 {
		return n, nil
	}
	return 0, fmt.Errorf("--signal %q: give a signal's name, as HUP, or its number, 1 to %d", text, maxSignal)
}
