package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/rpc"
	"github.com/bulkhead-project/bulkhead/internal/printable"
)

const (
	// maxMessage limits a message of a registration, in bytes.
	maxMessage = 64 << 10
	// maxName limits a plugin's name, maxVersions the number of its versions, and maxVersion the length of one of them.
	maxName     = 63
	maxVersions = 32
	maxVersion  = 32
	// maxPath limits the path of a unix socket.
	maxPath = 107
	// maxWords limits an error that is sent to a plugin, in bytes.
	maxWords = 1024
)

// name matches valid names of plugins. A name is part of paths and of names in the API.
var name = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*$`)

// Plugin is the description that a plugin has sent.
type Plugin struct {
	// Name is a DNS name of at most 63 characters.
	Name string
	// Endpoint is the path of its socket, below the root.
	Endpoint string
	// Versions are the supported versions of its interface.
	Versions []string
}

// register retries until the plugin is registered or unsupported, or ctx ends. It returns nil without a registration.
func (w *Watcher) register(ctx context.Context, socket string) (r *Registration) {
	failed := func(err error) { w.o.Logger.Warn("registering a plugin failed", "socket", socket, "error", err) }
	_ = pauses.Until(ctx, nil, func() (err error) {
		var p Plugin
		p, r, err = w.attempt(ctx, socket)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			w.o.Logger.Info("registered a plugin", "plugin", p.Name, "endpoint", p.Endpoint)
		case errors.Is(err, ErrUnsupported):
			failed(err)
			return nil
		}
		return err
	}, failed)
	return r
}

// attempt reads the plugin's description, registers it, and notifies it of the result.
func (w *Watcher) attempt(ctx context.Context, socket string) (p Plugin, r *Registration, err error) {
	conn, err := rpc.Connect(socket, maxMessage)
	if err != nil {
		return p, nil, err
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	within, cancel := context.WithTimeout(ctx, callTimeout)
	info, err := client.GetInfo(within, &registration.InfoRequest{})
	cancel()
	if err != nil {
		return p, nil, fmt.Errorf("ask the plugin of %s for its name: %w", socket, err)
	}
	if p, err = w.check(info, socket); err == nil {
		r, err = w.o.Register(ctx, p)
	}
	result := &registration.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		result.Error = clip(err.Error())
	}
	within, cancel = context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, failed := client.NotifyRegistrationStatus(within, result); failed != nil && err == nil {
		// The plugin works nonetheless, and stays registered while its socket exists.
		w.o.Logger.Warn("notifying a plugin of its registration failed", "plugin", p.Name, "error", failed)
	}
	return p, r, err
}

// check validates a plugin's description. Without an endpoint, a plugin serves at its registration socket.
func (w *Watcher) check(info *registration.PluginInfo, socket string) (p Plugin, err error) {
	if info.GetType() != registration.CSIPlugin {
		return p, fmt.Errorf("plugins of the type %q are %w", clip(info.GetType()), ErrUnsupported)
	}
	p = Plugin{Name: info.GetName(), Endpoint: cmp.Or(info.GetEndpoint(), socket), Versions: info.GetSupportedVersions()}
	if len(p.Name) > maxName || !name.MatchString(p.Name) {
		const why = "the name %q of a plugin must be a DNS name of at most %d characters: %w"
		return Plugin{}, fmt.Errorf(why, clip(p.Name), maxName, ErrUnsupported)
	}
	if len(p.Versions) > maxVersions {
		return p, fmt.Errorf("plugin %s reports %d versions (at most 32): %w", p.Name, len(p.Versions), ErrUnsupported)
	}
	for _, v := range p.Versions {
		if len(v) > maxVersion {
			return p, fmt.Errorf("plugin %s reports a version of %d characters (at most 32): %w", p.Name, len(v), ErrUnsupported)
		}
	}
	p.Endpoint = strings.TrimPrefix(p.Endpoint, "unix://")
	below := strings.HasPrefix(p.Endpoint, strings.TrimSuffix(filepath.Clean(w.o.Root), "/")+"/")
	if !below || p.Endpoint != filepath.Clean(p.Endpoint) || len(p.Endpoint) > maxPath {
		const why = "the endpoint %q of plugin %s must be a path of a socket below %s: %w"
		return p, fmt.Errorf(why, clip(p.Endpoint), p.Name, w.o.Root, ErrUnsupported)
	}
	var st unix.Stat_t
	if err := unix.Lstat(p.Endpoint, &st); err != nil {
		return p, fmt.Errorf("the endpoint %q of plugin %s: %w", p.Endpoint, p.Name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return p, fmt.Errorf("the endpoint %q of plugin %s must be a socket", p.Endpoint, p.Name)
	}
	return p, nil
}

// clip limits a text from or for a plugin and makes it printable.
func clip(s string) string { return printable.Text(s[:min(len(s), maxWords)]) }
