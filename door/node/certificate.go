package node

import (
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bulkhead-project/bulkhead/door/node/registration/certs"
)

// serving returns the certificate of the node's API. Without a client CA file, it accepts clients of the authorities in
// the API server's configuration.
func (n *node) serving() (*certs.Serving, error) {
	o := certs.ServingOptions{
		Node: n.o.Name, IP: n.o.IP, Cert: n.o.Cert, Key: n.o.Key, Rotate: n.o.RotateServing, Client: n.client, Dir: n.o.CertDir,
		ClientCA: n.o.ClientCA, Logger: n.o.Logger,
	}
	if o.ClientCA == "" {
		o.ClientCAData = n.o.Config.CAData
		if len(o.ClientCAData) == 0 {
			o.ClientCA = n.o.Config.CAFile
		}
	}
	return certs.NewServing(o)
}

// clientset returns a client of the API server. It uses the newest certificate if the node renews its own.
func (n *node) clientset(config *rest.Config) (kubernetes.Interface, error) {
	if n.o.Client == nil {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("client of the API server: %w", err)
		}
		return client, nil
	}
	own, err := n.o.Client.HTTP(config)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfigAndClient(config, own)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return client, nil
}
