package cri

import (
	"google.golang.org/grpc/status"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
)

// coded gives an error the gRPC code that CRI clients act on.
func coded(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(grpccode.Of(err), failure.Message(err))
}
