package image

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Login is the command login.
func Login(a *app.App) *cobra.Command {
	var req api.LoginRequest
	var stdin bool
	verify := true
	cmd := &cobra.Command{
		Use:   "login REGISTRY",
		Short: "Log in to a registry and store the credentials in auth.json",
		Long:  "Log in to a registry. There is no flag for the password, because other users could see it.",
		Example: `  bulkhead login registry.example.org
  bulkhead login -u ci --password-stdin registry.example.org < token`,
		Args: app.Exactly("REGISTRY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Registry, req.Insecure = args[0], !verify
			if err := credentials(a, &req, stdin); err != nil {
				return err
			}
			if err := a.Client.Call(cmd.Context(), "POST", "/v1/login", nil, req, nil); err != nil {
				return err
			}
			fmt.Fprintln(a.Out, "Login succeeded")
			return nil
		},
	}
	cmd.Flags().StringVarP(&req.Username, "username", "u", "", "user name (the command asks for a missing one)")
	cmd.Flags().BoolVar(&stdin, "password-stdin", false, "read the password from stdin")
	addTLSVerify(cmd, &verify)
	return cmd
}

// Logout is the command logout.
func Logout(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "logout REGISTRY", Short: "Remove the stored credentials of a registry", Args: app.Exactly("REGISTRY"),
		Example: "  bulkhead logout registry.example.org",
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.LoginRequest{Registry: args[0], Logout: true}
			return a.Client.Call(cmd.Context(), "POST", "/v1/login", nil, req, nil)
		},
	}
}

// credentials completes missing credentials from stdin, or asks for them.
func credentials(a *app.App, req *api.LoginRequest, stdin bool) error {
	if stdin {
		if req.Username == "" {
			return errors.New("--password-stdin needs --username")
		}
		b, err := io.ReadAll(io.LimitReader(a.In, 64<<10))
		req.Password = strings.TrimRight(string(b), "\r\n")
		return err
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return errors.New("cannot ask for a password, because stdin is not a terminal: use --username and --password-stdin")
	}
	if req.Username == "" {
		fmt.Fprint(a.Err, "Username: ")
		line, err := bufio.NewReader(a.In).ReadString('\n')
		if err != nil {
			return fmt.Errorf("read the user name: %w", err)
		}
		req.Username = strings.TrimSpace(line)
	}
	fmt.Fprint(a.Err, "Password: ")
	b, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(a.Err)
	if err != nil {
		return fmt.Errorf("read the password: %w", err)
	}
	req.Password = string(b)
	return nil
}
