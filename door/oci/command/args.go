package command

import (
	"fmt"

	"github.com/spf13/cobra"
)

// exactly refuses another number of arguments, in the words of runc.
func exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%q requires exactly %d argument(s)", c.Name(), n)
		}
		return nil
	}
}

// atLeast refuses fewer arguments, in the words of runc.
func atLeast(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < n {
			return fmt.Errorf("%q requires a minimum of %d argument(s)", c.Name(), n)
		}
		return nil
	}
}
