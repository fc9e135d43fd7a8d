"""`dnnc.cudnn`: names, steps and rules of cudnn-frontend 1.32."""
