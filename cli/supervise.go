package cli

import (
	"github.com/spf13/cobra"
)

// SupervisorCommand is the hidden command that clients start the supervisor
// with.
func SupervisorCommand(run func(cmd *cobra.Command) error) *cobra.Command {
	return &cobra.Command{
		Use: "supervisor", Short: "Run the engine of this user (started by the commands that need it)",
		Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd) },
	}
}
