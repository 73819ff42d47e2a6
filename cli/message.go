package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// id is what the lower layers call pods, containers and processes by; digests
// of images, which look alike, are left whole.
var id = regexp.MustCompile(`(sha256:)?[0-9a-f]{32,64}`)

// plain makes a message one line, with ids as short as ps shows them.
func plain(message string) string {
	// Part of it may be a pod's own words.
	message = printable(strings.Join(strings.Fields(message), " "))
	return id.ReplaceAllStringFunc(message, func(s string) string {
		if strings.HasPrefix(s, "sha256:") {
			return s
		}
		return short(s)
	})
}

// cannotRun is the part of a message that says why a command cannot be run,
// without the way that it took through the layers.
func cannotRun(message string) string {
	for _, op := range []string{"crun create: ", "crun exec: "} {
		if i := strings.LastIndex(message, op); i >= 0 {
			message = message[i+len(op):]
		}
	}
	if i := strings.LastIndex(message, ": command ended with"); i >= 0 {
		message = message[:i]
	}
	return plain(message)
}

// refusal is why a pod did not open a stream, without the way that it took
// through the layers.
func refusal(err error) error {
	if !errors.Is(err, stream.ErrRefused) {
		return err
	}
	_, why, _ := strings.Cut(err.Error(), stream.ErrRefused.Error()+": ")
	for _, op := range []string{"agent forward: ", "agent pack: ", "agent unpack: "} {
		if _, after, found := strings.Cut(why, op); found {
			why = after
		}
	}
	return errors.New(printable(why))
}

// printable leaves of a text what may be shown on a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text)
}

// exit prints err and returns the exit code that it stands for, see Main.
func (a *app) exit(cmd *cobra.Command, err error) int {
	if code := ExitError(0); errors.As(err, &code) {
		return int(code)
	}
	e := (*api.Error)(nil)
	cannot := errors.As(err, &e) && e.ExitCode != 0
	for _, one := range each(err) {
		text := plain(one.Error())
		if cannot {
			text = cannotRun(one.Error())
		}
		fmt.Fprintln(a.err, "bulkhead: "+text)
	}
	switch {
	case e == nil || e.Detail == "":
	case a.detail:
		fmt.Fprintln(a.err, strings.TrimRight(e.Detail, "\n"))
	default:
		fmt.Fprintln(a.err, "(again with --detail for more; bulkhead check looks for what this machine lacks)")
	}
	switch {
	case e != nil && e.ExitCode != 0:
		return e.ExitCode
	case cmd.Name() == "run" || cmd.Name() == "exec" || cmd.Name() == "attach":
		return 125
	}
	return 1
}

// each are the errors that were joined, or the one that it is.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && err.Error() == errors.Join(joined.Unwrap()...).Error() {
		return joined.Unwrap()
	}
	return []error{err}
}

// usage makes every command's errors about arguments and flags say where to
// read on.
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
	cmd.SetFlagErrorFunc(see)
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

// exactly demands the arguments that a command's usage names.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, given []string) error {
		switch {
		case len(given) < len(names):
			return fmt.Errorf("%s is missing", names[len(given)])
		case len(given) > len(names):
			return fmt.Errorf("%q is one argument too many", given[len(names)])
		}
		return nil
	}
}

// atLeast demands them and takes more.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, given []string) error {
		if len(given) < len(names) {
			return fmt.Errorf("%s is missing", names[len(given)])
		}
		return nil
	}
}

// atMost refuses more than those.
func atMost(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, given []string) error {
		if len(given) > len(names) {
			return fmt.Errorf("%q is one argument too many", given[len(names)])
		}
		return nil
	}
}

// choice says whether a flag's value is one of those it can be.
func choice(flag, value string, of ...string) error {
	for _, o := range of {
		if value == o {
			return nil
		}
	}
	return fmt.Errorf("--%s %q: use %s", flag, value, strings.Join(of, " or "))
}
