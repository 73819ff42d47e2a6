package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// usage makes all errors about arguments and flags name the command's help.
func usage(cmd *cobra.Command) {
	see := func(cmd *cobra.Command, err error) error {
		if err == nil {
			return nil
		}
		if cmd.HasParent() {
			err = fmt.Errorf("%s: %w", cmd.Name(), err)
		}
		return fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if meant := meantFlag(cmd, err); meant != "" {
			err = fmt.Errorf("%w: did you mean %s?", err, meant)
		}
		return see(cmd, err)
	})
	if cmd.Run == nil && cmd.RunE == nil {
		cmd.SuggestionsMinimumDistance = 2
		cmd.Args = func(cmd *cobra.Command, given []string) error {
			if len(given) == 0 {
				return nil
			}
			meant := ""
			if like := cmd.SuggestionsFor(given[0]); len(like) > 0 {
				meant = ": did you mean " + strings.Join(like, " or ") + "?"
			}
			return fmt.Errorf("unknown command %q%s", given[0], meant)
		}
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if args := cmd.Args; args != nil {
		cmd.Args = func(cmd *cobra.Command, given []string) error { return see(cmd, args(cmd, given)) }
	}
	for _, sub := range cmd.Commands() {
		usage(sub)
	}
}
