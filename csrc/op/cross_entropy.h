/* cross_entropy.h - the loss of a row whose class is given, and its gradient (api/loss.h). It uses
 * the kernels of softmax. csrc/cpu/loss.c and csrc/cuda/loss.cu have the rest. */

#ifdef ONS_OPERATION
ONS_OPERATION(cross_entropy, LOSS, NOTHING, 0.0, "logsumexp(x) - x[target]")
ONS_OPERATION(cross_entropy_with_grad, LOSS_GRADIENT, EXPONENTIALS, 0.0,
              "logsumexp(x) - x[target], and its gradient softmax(x) - 1 at the target")
#endif
