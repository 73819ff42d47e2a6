package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/bulkhead-project/bulkhead/door/node"
	"github.com/bulkhead-project/bulkhead/door/node/config"
	"github.com/bulkhead-project/bulkhead/door/node/registration/certs"
)

// identify reads the kubeconfig, and creates it first if it is missing. A node with static pods only has none.
func identify(ctx context.Context, c *config.Config, o *node.Options, log *slog.Logger) (err error) {
	if c.Kubeconfig == "" {
		return nil
	}
	if o.CertDir, err = filepath.Abs(c.CertDir); err != nil {
		return fmt.Errorf("cert-dir: %w", err)
	}
	of := certs.Options{Kubeconfig: c.Kubeconfig, Bootstrap: c.Bootstrap, Dir: o.CertDir, Node: c.NodeName, Logger: log}
	if err := certs.Bootstrap(ctx, of); err != nil {
		return err
	}
	if o.Config, err = certs.Kubeconfig(c.Kubeconfig); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	o.Client, err = certs.NewClient(o.Config, of)
	return err
}
