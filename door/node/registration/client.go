package registration

import (
	"fmt"
	"log/slog"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bulkhead-project/bulkhead/door/node/bounds"
	"github.com/bulkhead-project/bulkhead/door/node/registration/certs"
)

// Connect returns a client of the API server, or nil without one. The client does not limit its rate: an overloaded
// server asks clients to slow down. It uses the newest certificate if the node renews its own.
func Connect(o Options) (kubernetes.Interface, error) {
	if o.Config == nil {
		return nil, nil
	}
	config := rest.CopyConfig(o.Config)
	config.QPS, config.UserAgent = -1, "bulkhead-node/"+o.Version
	config.Wrap(bounds.Wrap)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := o.clientset(config)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return client, nil
}

func (o *Options) clientset(config *rest.Config) (*kubernetes.Clientset, error) {
	if o.Client == nil {
		return kubernetes.NewForConfig(config)
	}
	own, err := o.Client.HTTP(config)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfigAndClient(config, own)
}

// serving returns the certificate of the node's API. Without a client CA file, it accepts clients of the authorities in
// the API server's configuration.
func (o *Options) serving(client kubernetes.Interface, log *slog.Logger) (*certs.Serving, error) {
	of := certs.ServingOptions{
		Node: o.Name, IP: o.IP, Cert: o.Cert, Key: o.Key, Rotate: o.RotateServing, Client: client, Dir: o.CertDir, ClientCA: o.ClientCA,
		Logger: log,
	}
	if of.ClientCA == "" {
		of.ClientCAData = o.Config.CAData
		if len(of.ClientCAData) == 0 {
			of.ClientCA = o.Config.CAFile
		}
	}
	return certs.NewServing(of)
}
