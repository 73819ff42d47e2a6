// Command bulkhead-node is the process of `bulkhead node`: an engine of its own instance with a door for a
// Kubernetes API server. It is separate from bulkhead-engine, which does not need clients of an API server.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/bulkhead-project/bulkhead/door/node"
	"github.com/bulkhead-project/bulkhead/door/node/config"
	"github.com/bulkhead-project/bulkhead/door/node/registration"
	"github.com/bulkhead-project/bulkhead/door/node/resources"
	"github.com/bulkhead-project/bulkhead/door/node/runtime"
	"github.com/bulkhead-project/bulkhead/door/node/runtime/endpoint"
	"github.com/bulkhead-project/bulkhead/door/node/runtime/local"
	"github.com/bulkhead-project/bulkhead/door/setup"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/sdnotify"
	"github.com/bulkhead-project/bulkhead/internal/version"
	"github.com/bulkhead-project/bulkhead/network/cni"
	"github.com/bulkhead-project/bulkhead/shim/confine"
)

func main() {
	logrus.SetLevel(logrus.ErrorLevel) // the image library logs retries there
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	signal.Ignore(syscall.SIGHUP)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(node.GCPercent)
	}
	err := confine.Without(confine.NeverUsed)
	if err == nil {
		err = serve(ctx, os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bulkhead-node:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, args []string) error {
	var c config.Config
	flags := pflag.NewFlagSet("bulkhead-node", pflag.ContinueOnError)
	c.Add(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	log, err := setup.Logger(c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	klog.SetSlogLogger(log) // client-go's logs
	o, err := options(&c)
	if err != nil {
		return err
	}
	o.Logger = log
	if err := identify(ctx, &c, &o, log); err != nil {
		return err
	}
	ready, done, err := sdnotify.Service(ctx, log)
	if err != nil {
		return err
	}
	defer done()
	return node.Run(ctx, o, func() {
		log.Info("the node is ready", "node", o.Name)
		ready()
	})
}

// options converts the flags.
func options(c *config.Config) (o node.Options, err error) {
	o = node.Options{
		Options: registration.Options{
			Name: c.NodeName, IP: c.NodeIP, MaxPods: c.MaxPods, Listen: c.Listen, Cert: c.Cert, Key: c.Key, ClientCA: c.ClientCA,
			RotateServing: c.RotateServing, Version: version.Version,
		},
		Limits:     resources.Limits{ImageGCHigh: c.ImageGCHigh, ImageGCLow: c.ImageGCLow},
		ClusterDNS: c.ClusterDNS, ClusterDomain: c.ClusterDomain, Manifests: c.Manifests,
	}
	if o.RootDir = c.RootDir; c.Endpoint != "" {
		o.Runtime, o.RootDir = remote(c.Endpoint), "" // its pods have no volumes of CSI drivers
	}
	if o.Roots, err = dirs.Default(dirs.Node); err != nil {
		return o, err
	}
	if o.Labels, err = labels(c.Labels); err != nil {
		return o, err
	}
	if o.Taints, err = taints(c.Taints); err != nil {
		return o, err
	}
	if o.Reserved, err = reserved(c.Reserved); err != nil {
		return o, err
	}
	if o.ImageMinAge, err = c.MinImageAge(); err != nil {
		return o, err
	}
	if o.ShutdownGrace, o.ShutdownGraceCritical, err = c.Shutdown(); err != nil {
		return o, err
	}
	if o.Eviction, err = resources.ParseThresholds(c.EvictionHard); err != nil {
		return o, err
	}
	o.Engine.NoForks, o.Engine.Tenant, err = setup.Warm(cmp.Or(c.Warm, os.Getenv("BULKHEAD_WARM")))
	if err != nil {
		return o, fmt.Errorf("warm: %w", err)
	}
	if o.Engine.DefaultMemory, o.Engine.DefaultVCPUs, err = setup.Size(c.DefaultMemory, c.DefaultCPUs); err != nil {
		return o, err
	}
	if c.Network == config.CNI {
		o.Engine.CNI = &cni.Options{Conf: c.CNIConf, Bin: c.CNIBin}
	}
	return o, nil
}

// remote opens another program's runtime in place of the engine.
func remote(at string) func(context.Context, local.Options) (runtime.Runtime, error) {
	return func(ctx context.Context, l local.Options) (runtime.Runtime, error) {
		r, err := endpoint.Open(ctx, endpoint.Options{
			Endpoint: at, Lock: filepath.Join(l.Roots.Instance(local.Instance), "engine.lock"), Volumes: l.Volumes, Logger: l.Logger,
		})
		if err != nil {
			return nil, err
		}
		return r, nil
	}
}
